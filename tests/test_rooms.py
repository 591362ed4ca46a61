"""The rooms of csrc and what may stand in them. Every check is a function from text to complaints,
so that each is shown to find a planted fault as well as to pass on the sources."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
ROOMS = ["include", "base", "kernels", "engine", "host", "cross"]
SOURCES = sorted(f for room in ROOMS for f in (CSRC / room).rglob("*.[ch]"))
MESON = (ROOT / "meson.build").read_text()

SYSTEM = {"assert.h", "float.h", "math.h", "stdbool.h", "stddef.h", "stdint.h", "string.h"}
INTRINSICS = {"immintrin.h"}
THREADS = {"pthread.h", "sched.h", "signal.h", "time.h", "unistd.h"}
POSIX = "host/threads_posix.c"  # the one file that may know of threads
FAST = re.compile(r"^host/|[_/](avx2|avx512|simd)\.[ch]$")  # files that may know the CPU

FORBIDDEN_CALL = re.compile(
    r"""(?x)
    malloc | calloc | realloc | free | aligned_alloc | posix_memalign | alloca | strdup
    | v?[fs]?n?printf | f?puts | f?putc | putchar | [fs]?scanf | fopen | fclose | fread | fwrite
    | perror | _?_?exit | abort | atexit | raise | signal | longjmp | setjmp | system | getenv
    | (exp2? | expm1 | log | log2 | log10 | log1p | pow | sin | cos | tan | tanh | cbrt | fma
       | floor | ceil | round | trunc | rint | nearbyint | lrint | lround | fabs | fmin | fmax
       | fmod | ldexp | frexp | scalbn | copysign) f?
    | sqrt"""
)

ISA_MACRO = re.compile(
    r"__(AVX|SSE|FMA|BMI|F16C|ARM|arm|aarch64|thumb|x86_64|amd64|i386|riscv)|_M_(X64|IX86|ARM)"
    r"|QFW_HAVE_|QFW_ISA"
)
KEYWORDS = {"if", "for", "while", "switch", "return", "sizeof", "do", "else", "defined"}


def plain(text: str) -> str:
    """C without comments, string contents and the C++ guard; the lines stay where they were."""

    def blank(m: re.Match[str]) -> str:
        return ('""' if m[0][0] == '"' else "' '" if m[0][0] == "'" else " ") + "\n" * m[0].count(
            "\n"
        )

    text = re.sub(
        r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S
    )
    return re.sub(r"#ifdef __cplusplus.*?#endif", " ", text, flags=re.S)


def declarations(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """File-scope declarations (a braced part as "{}") and functions (head, body) of a C text."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", plain(text), flags=re.M)
    found: list[str] = []
    functions: list[tuple[str, str]] = []
    head, start, depth = "", 0, 0
    for i, c in enumerate(code):
        if c == "{":
            start, depth = (i + 1 if depth == 0 else start), depth + 1
        elif c == "}":
            depth -= 1
            if depth == 0 and head.rstrip().endswith(")"):
                functions.append((" ".join(head.split()), code[start:i]))
                head = ""
            elif depth == 0:
                head += "{}"
        elif depth == 0 and c == ";":
            found.append(" ".join(head.split()))
            head = ""
        elif depth == 0:
            head += c
    return [d for d in found if d], functions


def name_of(head: str) -> str:
    """The function's name in `static int f(int a)`."""
    depth = 0
    for i in reversed(range(len(head))):
        depth += {")": 1, "(": -1}.get(head[i], 0)
        if depth == 0:
            return re.findall(r"\w+", head[:i])[-1]
    raise ValueError(head)


def constant(declaration: str) -> bool:
    """Nothing in it can be assigned: const, and after the last star too."""
    declarator = declaration.split("=")[0]
    return re.search(r"\bconst\b", declarator.rsplit("*", 1)[-1]) is not None


def include_faults(file: str, text: str) -> list[str]:
    room = ROOMS.index(file.split("/")[0])
    faults = []
    for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*"(.+?)"', text, flags=re.M):
        there = name.split("/")[0]
        if "/" not in name or there not in ROOMS:
            faults.append(f"{file}: {name} does not name a room ({', '.join(ROOMS)})")
        elif ROOMS.index(there) > room:
            faults.append(f"{file} ({ROOMS[room]}) reaches for {name}")
        elif FAST.search(name) and not FAST.search(file):
            faults.append(f"{file} is not a fast twin, but includes {name}")
    allowed = SYSTEM | (INTRINSICS if FAST.search(file) else set())
    allowed |= THREADS if file == POSIX else set()
    for name in re.findall(r"^[ \t]*#[ \t]*include[ \t]*<(.+?)>", text, flags=re.M):
        if name not in allowed:
            faults.append(f"{file}: <{name}> is not among {sorted(allowed)}")
    return faults


def call_faults(file: str, text: str) -> list[str]:
    names = re.findall(r"(?<![\w.>])([a-z_]\w*)\s*\(", plain(text))
    return [f"{file}: {name}()" for name in names if FORBIDDEN_CALL.fullmatch(name)]


def global_faults(file: str, text: str) -> list[str]:
    found, functions = declarations(text)
    faults = []
    for d in found:
        is_type = re.match(r"typedef|(struct|union|enum)\b([^(=]*\{\}| \w+)$", d)
        is_prototype = "(" in d and ("=" not in d or d.startswith("QFW_STATIC_ASSERT("))
        is_symbol = file.startswith("cross/") and d.startswith("extern ")  # of the linker script
        if not (is_type or is_prototype or is_symbol or constant(d)):
            faults.append(f"{file}: variable {d!r}")
    for head, body in functions:
        for d in re.findall(r"\bstatic\b[^;]*", body):
            if not constant(d):
                faults.append(f"{file}: variable {' '.join(d.split())!r} in {name_of(head)}")
    return faults


def vla_faults(file: str, text: str) -> list[str]:
    declaration = r"\b(?:u?int\d*(?:_t)?|size_t|float|double|char|bool|qfw_\w+)\s+\w+\[([^\]]+)\]"
    faults = []
    for _, body in declarations(text)[1]:
        for size in re.findall(declaration, body):
            if re.search(r"\b(?!sizeof\b)[a-z]\w*", size):
                faults.append(f"{file}: the array size {size!r} is not a constant")
    return faults


def recursion_faults(texts: dict[str, str]) -> list[str]:
    """Cycles of direct calls; a name means the function of the same file, else any of that name."""
    bodies: dict[tuple[str, str], list[str]] = {}
    files: dict[str, set[str]] = {}
    for file, text in texts.items():
        for head, body in declarations(text)[1]:
            bodies.setdefault((file, name_of(head)), []).append(body)
            if not head.startswith("static") or file.endswith(".h"):
                files.setdefault(name_of(head), set()).add(file)
    calls: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for (file, name), parts in bodies.items():
        called = set(re.findall(r"(?<![\w.>])([A-Za-z_]\w*)\s*\(", " ".join(parts))) - KEYWORDS
        calls[file, name] = {
            (where, n)
            for n in called
            for where in ([file] if (file, n) in bodies else files.get(n, ()))
        }
    while True:  # take away what calls nothing any more; what stays is on a cycle or leads to one
        leaves = {f for f, to in calls.items() if not to & calls.keys()}
        if not leaves:
            return sorted(f"{file}: {name} is recursive" for file, name in calls)
        calls = {f: to for f, to in calls.items() if f not in leaves}


def isa_faults(file: str, text: str) -> list[str]:
    faults, depth = [], 0
    for line in re.sub(r"\\\n", " ", plain(text)).splitlines():
        if line.lstrip().startswith("#"):
            if depth > 0 and re.match(r"\s*#\s*(if|el)", line) and re.search(ISA_MACRO, line):
                faults.append(f"{file}: {line.strip()!r} inside a function")
        else:
            depth += line.count("{") - line.count("}")
    return faults


def defined_functions(texts: dict[str, str], files: str) -> list[str]:
    """Names of the functions in files whose name matches."""
    found = (text for file, text in texts.items() if re.fullmatch(files, file))
    return [name_of(head) for text in found for head, _ in declarations(text)[1]]


def list_faults(listed: str, texts: dict[str, str]) -> list[str]:
    """kernels.def against the sources: a kernel has a definition and a twin, an operation a
    definition and a rule; nothing else has such a name, and no number stands twice."""
    code = re.sub(r"^#.*$", "", plain(listed), flags=re.M)
    lines = re.findall(r"^(\w+)\(((?:[^()]|\([^()]*\))*)\)$", code, flags=re.M)
    kernels, wide, dsp, numbers, ops, faults = [], [], [], [], [], []
    for macro, text in lines:
        arguments = [a.strip() for a in re.sub(r"\([^()]*\)", "()", text).split(",")]
        if re.fullmatch("QFW_KERNEL(_512|_DSP|_M)?", macro) and len(arguments) == 1:
            kernels.append(arguments[0])
            wide += arguments if macro in ("QFW_KERNEL_512", "QFW_KERNEL_DSP") else []
            dsp += arguments if macro in ("QFW_KERNEL_DSP", "QFW_KERNEL_M") else []
        elif macro == "QFW_OP" and len(arguments) == 10:
            numbers.append(int(arguments[0]))
            ops.append(arguments[1])
        else:
            faults.append(f"{macro}({text}): {len(arguments)} arguments")
    for names in (kernels, numbers, ops):
        twice = sorted({name for name in names if names.count(name) > 1})
        faults += [f"{name} is listed twice" for name in twice]
    known = {
        r"kernels/(?!.*_(avx2|avx512|dsp)\.c)\w+\.c": [f"qfw_{name}_scalar" for name in kernels],
        r"kernels/\w+_avx2\.c": [f"qfw_{name}_avx2" for name in kernels],
        r"kernels/\w+_avx512\.c": [f"qfw_{name}_avx512" for name in wide],
        r"kernels/\w+_dsp\.c": [f"qfw_{name}_dsp" for name in dsp],
        r"engine/\w+\.c": [f"qfw_{kind}_{name}" for kind in ("op", "rule") for name in ops],
    }
    for files, names in known.items():
        found = defined_functions(texts, files)
        faults += [f"{name} is not defined" for name in names if name not in found]
        pattern = r"qfw_(op|rule)_(?!name$|of$)\w+|qfw_\w+_(scalar|avx2|avx512|dsp)"
        others = (name for name in found if re.fullmatch(pattern, name) and name not in names)
        faults += [f"{name} is not listed" for name in others]
    count = re.findall(r"QFW_OP_COUNT = (\d+)", texts.get("engine/engine.h", ""))
    if ops and count != [str(max(numbers) + 1)]:
        faults.append(f"QFW_OP_COUNT is {count}, and the last number {max(numbers)}")
    return faults


def core_import_faults(file: str, text: str) -> list[str]:
    faults = []
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module or ''}.{a.name}" for a in node.names]
        faults += [f"{file} imports {n}" for n in names if "_core" in n.split(".")]
    return faults


def where(f: Path) -> str:
    return f.relative_to(CSRC).as_posix()


def all_faults(check) -> list[str]:
    return [fault for f in SOURCES for fault in check(where(f), f.read_text())]


TEXT_CHECKS = [include_faults, call_faults, global_faults, vla_faults, isa_faults]


def test_there_are_sources():
    assert {where(f).split("/")[0] for f in SOURCES} >= {"include", "base", "kernels", "host"}


@pytest.mark.parametrize("check", TEXT_CHECKS)
def test_sources(check):
    assert all_faults(check) == []


def test_no_recursion():
    assert recursion_faults({where(f): f.read_text() for f in SOURCES}) == []


def test_what_is_included_is_there():
    for f in SOURCES:
        for name in re.findall(r'#include "(.+?)"', f.read_text()):
            assert (CSRC / name).is_file(), f"{where(f)} includes {name}"


@pytest.mark.parametrize("file", SOURCES, ids=where)
def test_a_file_has_at_most_400_lines(file):
    most = 535 if file.name == "qfw.h" else 400  # the whole interface is one header
    assert len(file.read_text().splitlines()) <= most


def test_every_source_is_built():
    listed = re.findall(r"'(csrc/[^']+\.c|pyqfw/[^']+\.(?:py|pyi|typed))'", MESON)
    board = (CSRC / "cross" / "meson.build").read_text()
    listed += [f"csrc/cross/{name}" for name in re.findall(r"'([^']+\.c)'", board)]
    assert len(listed) == len(set(listed))
    present = {f"csrc/{where(f)}" for f in SOURCES if f.suffix == ".c"}
    package = {
        f.relative_to(ROOT).as_posix()
        for f in (ROOT / "pyqfw").rglob("*")
        if f.suffix in (".py", ".pyi", ".typed")
    }
    assert set(listed) == present | package


def test_twins_stand_beside_their_definition():
    for f in SOURCES:
        if re.search(r"_(avx2|avx512|dsp)\.c$", f.name):
            assert f.with_name(re.sub(r"_(avx\d+|dsp)", "", f.name)).is_file(), where(f)


def test_every_kernel_and_operation_is_defined():
    listed = (CSRC / "kernels" / "kernels.def").read_text()
    assert list_faults(listed, {where(f): f.read_text() for f in SOURCES}) == []


def test_the_public_header_has_no_macros():
    """cffi would leave them out without a word: integer constants are enums."""
    text = (CSRC / "include" / "qfw.h").read_text()
    assert set(re.findall(r"#\s*define\s+(\w+)", text)) == {"QFW_H"}


def test_only_two_modules_touch_the_core():
    for f in sorted((ROOT / "pyqfw").rglob("*.py")):
        if f.relative_to(ROOT / "pyqfw").as_posix() not in ("quant.py", "session.py"):
            assert core_import_faults(f.name, f.read_text()) == []


PLANTED = [
    (include_faults, "base/a.c", '#include "kernels/kernels.h"'),
    (include_faults, "kernels/a.c", '#include "host/cpu.h"'),
    (include_faults, "host/a.c", '#include "cross/semihost.h"'),
    (include_faults, "base/a.c", '#include "round.h"'),
    (include_faults, "base/a.c", "#include <stdlib.h>"),
    (include_faults, "host/a.c", "#include <pthread.h>"),
    (include_faults, "engine/a.c", '#include "host/threads.h"'),
    (include_faults, "kernels/a.c", "#include <immintrin.h>"),
    (include_faults, "kernels/a.c", '#include "kernels/avx2.h"'),
    (call_faults, "base/a.c", "void *f(void)\n{\n    return malloc(1);\n}"),
    (call_faults, "base/a.c", "void f(void)\n{\n    exit (1);\n}"),
    (call_faults, "base/a.c", "float f(float x)\n{\n    return expf(x);\n}"),
    (global_faults, "base/a.c", "int counter;"),
    (global_faults, "base/a.c", "extern int counter;"),
    (global_faults, "base/a.c", "static int counter = 3;"),
    (global_faults, "cross/a.c", "static int counter;"),
    (global_faults, "base/a.c", 'static const char *names[] = {"a", "b"};'),
    (global_faults, "base/a.c", "int (*hook)(void) = 0;"),
    (global_faults, "base/a.c", "int f(void)\n{\n    static int n;\n    return n++;\n}"),
    (vla_faults, "base/a.c", "void f(int n)\n{\n    int32_t t[n + 1];\n}"),
    (isa_faults, "base/a.c", "void f(void)\n{\n#ifdef __AVX2__\n    g();\n#endif\n}"),
    (core_import_faults, "a.py", "from ._core import lib"),
    (core_import_faults, "a.py", "from . import _core"),
    (core_import_faults, "a.py", "import pyqfw._core as c"),
]


@pytest.mark.parametrize(("check", "file", "text"), PLANTED)
def test_planted_faults_are_found(check, file, text):
    assert len(check(file, text)) == 1


def test_planted_recursion_is_found():
    one = "static int f(int n)\n{\n    return n == 0 ? 0 : f(n - 1);\n}"
    assert recursion_faults({"base/a.c": one}) == ["base/a.c: f is recursive"]
    a = "int qfw_a(int n)\n{\n    return qfw_b(n);\n}"
    b = "int qfw_b(int n)\n{\n    return qfw_a(n);\n}"
    assert len(recursion_faults({"base/a.c": a, "base/b.c": b})) == 2


LISTED = """/* QFW_OP(number, name, eight places) in words */
#ifndef QFW_OP
#define QFW_OP(number, name, p0, p1, p2, p3, p4, p5, p6, p7)
#endif
QFW_KERNEL(sum)
QFW_OP(1, add, OUT(S8 | S16), IN(S8),
       MAY(BYTES), NO, NO, NO, NO, NO)
"""
DEFINED = {
    "kernels/sum.c": "int qfw_sum_scalar(void)\n{\n    return 1;\n}",
    "kernels/sum_avx2.c": "int qfw_sum_avx2(void)\n{\n    return 1;\n}",
    "engine/add.c": "int qfw_op_add(int n)\n{\n    return n;\n}\n"
    "int qfw_rule_add(int n)\n{\n    return n;\n}\n"
    "int qfw_op_name(int n)\n{\n    return n;\n}",
    "engine/engine.h": "enum { QFW_OP_COUNT = 2 };",
}


@pytest.mark.parametrize(
    ("listed", "texts", "fault"),
    [
        (LISTED + "QFW_KERNEL(max)\n", {}, "qfw_max_scalar is not defined"),
        (LISTED, {"kernels/sum_avx2.c": ""}, "qfw_sum_avx2 is not defined"),
        (LISTED, {"kernels/sum_avx2.c": DEFINED["kernels/sum.c"]}, "qfw_sum_scalar is not listed"),
        (LISTED.replace("L(sum", "L_512(sum"), {}, "qfw_sum_avx512 is not defined"),
        (LISTED, {"kernels/sum_avx512.c": "int qfw_sum_avx512(int n)\n{\n}"}, "is not listed"),
        (LISTED, {"engine/add.c": DEFINED["engine/add.c"][:30]}, "qfw_rule_add is not defined"),
        (LISTED.replace("QFW_KERNEL(sum)\n", ""), {}, "qfw_sum_scalar is not listed"),
        (LISTED.replace("NO, NO, NO", "NO, NO"), {}, "9 arguments"),
        (LISTED + "QFW_OP(1, neg, NO, NO, NO, NO, NO, NO, NO, NO)\n", {}, "1 is listed twice"),
        (LISTED + "QFW_OP(2, neg, NO, NO, NO, NO, NO, NO, NO, NO)\n", {}, "QFW_OP_COUNT"),
        (LISTED, {"engine/neg.c": "int qfw_op_neg(int n)\n{\n    return n;\n}"}, "is not listed"),
    ],
)
def test_planted_faults_of_the_list_are_found(listed, texts, fault):
    assert list_faults(LISTED, DEFINED) == []
    assert any(fault in found for found in list_faults(listed, {**DEFINED, **texts}))


def test_what_is_allowed_is_not_a_fault():
    text = """
/* malloc(1) in words */
typedef struct {
    int a;
} t;
enum { N = 3 };
struct opaque;
static const int table[N] = {1, 2, 3};
static const char *const names[] = {"exit(1)", "}"};
int f(const int *x);
#if defined(__ARM_ARCH_6M__)
static int g(int n)
{
    static const int k[2] = {1, 2};
    int32_t tile[2 * N];
    return k[n] + tile[0];
}
#endif
"""
    for check in TEXT_CHECKS:
        assert check("base/a.c", text) == []
    assert recursion_faults({"base/a.c": text}) == []
