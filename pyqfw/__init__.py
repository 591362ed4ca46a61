"""pyqfw: small neural networks trained in low-bit integers, with the same bits everywhere."""

from . import data, mcu, nn, optim, quant
from .counters import CounterLog
from .errors import DTypeError, FileError, NonFiniteError, QfwError, ScaleError, ShapeError
from .findings import Finding
from .firmware import export
from .fit import History, evaluate, fit
from .formats import BFP, Asym, Float32, Format, Sym, SymInt32
from .interop import from_torch
from .nn import RAW
from .plan import Plan, compile
from .policy import Policy
from .report import report
from .session import Session
from .tensor import QTensor, quantize, requant
from .validate import validate

__version__: str = quant.core_info()["version"]

__all__ = [
    "BFP",
    "RAW",
    "Asym",
    "CounterLog",
    "DTypeError",
    "FileError",
    "Finding",
    "Float32",
    "Format",
    "History",
    "NonFiniteError",
    "Plan",
    "Policy",
    "QTensor",
    "QfwError",
    "ScaleError",
    "Session",
    "ShapeError",
    "Sym",
    "SymInt32",
    "compile",
    "data",
    "evaluate",
    "export",
    "fit",
    "from_torch",
    "mcu",
    "nn",
    "optim",
    "quant",
    "quantize",
    "report",
    "requant",
    "validate",
]
