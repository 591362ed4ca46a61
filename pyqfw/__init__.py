"""pyqfw: small neural networks trained in low-bit integers, with the same bits everywhere."""

from . import quant
from .errors import DTypeError, NonFiniteError, QfwError, ScaleError, ShapeError
from .formats import BFP, Asym, Float32, Format, Sym, SymInt32
from .tensor import QTensor, quantize, requant

__version__: str = quant.core_info()["version"]

__all__ = [
    "BFP",
    "Asym",
    "DTypeError",
    "Float32",
    "Format",
    "NonFiniteError",
    "QTensor",
    "QfwError",
    "ScaleError",
    "ShapeError",
    "Sym",
    "SymInt32",
    "quant",
    "quantize",
    "requant",
]
