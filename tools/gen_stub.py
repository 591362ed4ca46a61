"""Write pyqfw/_core.pyi from the installed extension; `--check` only compares."""

import sys
from pathlib import Path
from typing import Any

from pyqfw._core import ffi, lib

OUT = Path(__file__).resolve().parent.parent / "pyqfw" / "_core.pyi"


def py_type(t: Any) -> str:
    if t.kind == "void":
        return "None"
    if t.kind == "enum":
        return "int"
    if t.kind == "primitive":
        return {"float": "float", "double": "float", "_Bool": "bool"}.get(t.cname, "int")
    return "Any"  # pointers, structs, arrays, function pointers


def declaration(name: str) -> str:
    value = getattr(lib, name)
    if isinstance(value, int):
        return f"    {name}: Final = {value}"
    t = ffi.typeof(value)
    args = "".join(f", a{i}: {py_type(a)}" for i, a in enumerate(t.args))
    return f"    def {name}(self{args}{', /' if args else ''}) -> {py_type(t.result)}: ..."


def stub() -> str:
    lines = [
        "# Written by tools/gen_stub.py from csrc/include/qfw.h: do not edit.",
        "from typing import Any, Final",
        "",
        "class _Lib:",
        *(declaration(name) for name in sorted(dir(lib))),
        "",
        "ffi: Any",
        "lib: _Lib",
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        print("usage: gen_stub.py [--check]", file=sys.stderr)
        return 2
    text = stub()
    if sys.argv[1:] == []:
        OUT.write_text(text)
    elif not OUT.is_file() or OUT.read_text() != text:
        print("pyqfw/_core.pyi is stale: run tools/gen_stub.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
