"""What goes wrong, by name. Every error here is a ValueError too."""


class QfwError(ValueError):
    """Something a call cannot work with; the message names it and says what would be right."""


class ShapeError(QfwError):
    """A shape, or two shapes that do not fit each other."""


class ScaleError(QfwError):
    """A scale that is not a positive normal number, or a zero point that is no code."""


class NonFiniteError(QfwError):
    """A NaN or an infinity in data."""


class DTypeError(QfwError, TypeError):
    """An array of a type that the call does not take."""


class FileError(QfwError):
    """A file that is damaged, or of another program, or says what cannot be."""
