"""pyqfw: small neural networks trained in low-bit integers, with the same bits everywhere."""

from typing import TYPE_CHECKING, Any

from . import data, nn, optim, quant
from .counters import CounterLog
from .errors import DTypeError, FileError, NonFiniteError, QfwError, ScaleError, ShapeError
from .findings import Finding
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

if TYPE_CHECKING:
    from . import mcu
    from .firmware import export

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


def __getattr__(name: str) -> Any:
    """What compilers and emulators are for is imported when it is first asked for."""
    if name == "mcu":
        from importlib import import_module

        return import_module(".mcu", __name__)
    if name == "export":
        from .firmware import export

        globals()[name] = export
        return export
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
