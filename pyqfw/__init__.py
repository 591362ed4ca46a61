"""pyqfw: small neural networks trained in low-bit integers, with the same bits everywhere."""

from . import nn, optim, quant
from .errors import DTypeError, FileError, NonFiniteError, QfwError, ScaleError, ShapeError
from .formats import BFP, Asym, Float32, Format, Sym, SymInt32
from .interop import from_torch
from .nn import RAW
from .plan import Finding, Plan, compile
from .policy import Policy
from .session import Session
from .tensor import QTensor, quantize, requant

__version__: str = quant.core_info()["version"]

__all__ = [
    "BFP",
    "RAW",
    "Asym",
    "DTypeError",
    "FileError",
    "Finding",
    "Float32",
    "Format",
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
    "from_torch",
    "nn",
    "optim",
    "quant",
    "quantize",
    "requant",
]
