"""The command `pyqfw`: what is installed, and how fast it is here; other commands are in modules
of their own."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import metadata, util
from pathlib import Path
from typing import Any

import numpy as np

from . import (
    __version__,
    bench,
    bench_gemm,
    bench_layers,
    bench_mcu,
    bench_quant,
    bench_train,
    cli_demo,
    cli_growth,
    cli_inspect,
    cli_mcu,
    cli_report,
    cli_train,
    quant,
)
from .cli_common import Parser, positive
from .errors import QfwError

EXTRAS = (
    "torch",
    "matplotlib",
    "sklearn",
    "seglearn",
    "unicorn",
    "ziglang",
    "ml_dtypes",
    "pytest",
    "hypothesis",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; the exit status."""
    args = _parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        status = command(args)
        sys.stdout.flush()
        return status
    except (QfwError, OSError) as e:
        if isinstance(e, BrokenPipeError):  # `pyqfw info | head -1`: the reader has what it wanted
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        else:
            print(f"pyqfw: {e}", file=sys.stderr)
        return 1
    except MemoryError:
        print("pyqfw: there is not enough memory for that size", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="pyqfw",
        description="Training with low-bit integers: the tools around the library.",
        epilog="example: pyqfw info",
    )
    parser.add_argument("--version", action="version", version=f"pyqfw {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True, title="commands")

    for module in (cli_demo, cli_train, cli_inspect, cli_report, cli_mcu):
        module.add(commands)

    info = commands.add_parser(
        "info",
        help="versions, compiler, instruction sets, extras",
        description="What is installed: core, compiler, instruction sets, Python, NumPy, extras.",
        epilog="example: pyqfw info --json",
    )
    info.add_argument("--json", action="store_true", help="machine-readable")
    info.set_defaults(command=_info)

    benches = commands.add_parser(
        "bench",
        help="speed on this machine, beside its peers",
        description="Speed on this machine, each figure beside its peer's from the same run.",
        epilog="example: pyqfw bench quant",
    )
    suites = benches.add_subparsers(metavar="suite", required=True, title="suites")
    _quant_parser(suites)
    _plain_parser(
        suites,
        "gemm",
        "matrix products in integers and float32",
        "Matrix products beside NumPy's sgemm",
        bench_gemm.suite,
    )
    _plain_parser(
        suites,
        "layers",
        "training steps of single layers",
        "Training steps of single layers beside torch float32 (if installed)",
        bench_layers.suite,
    )
    _train_parser(suites)
    cli_growth.add(suites)
    _mcu_parser(suites)
    return parser


def _quant_parser(suites: Any) -> None:
    q = suites.add_parser(
        "quant",
        help="the quantize family: quantize, fake_quantize, pack, unpack",
        description="Quantize, fake-quantize and packing beside memcpy and torch (if installed), "
        "in interleaved rounds on one pinned thread.",
        epilog="example: pyqfw bench quant --elements 1M --repeats 5 --json > quant.json",
    )
    q.add_argument(
        "--elements",
        type=_elements,
        default=16 * 2**20,
        metavar="N",
        help="numbers, a multiple of 1024; k and M mean 2^10 and 2^20 (default: 16M)",
    )
    _bench_options(q, lambda args: bench_quant.suite(args.elements))


def _plain_parser(
    suites: Any, name: str, what: str, beside: str, suite: Callable[[], bench.Suite]
) -> None:
    """A suite without options of its own."""
    parser = suites.add_parser(
        name,
        help=what,
        description=f"{beside}, in interleaved rounds on one pinned thread.",
        epilog=f"example: pyqfw bench {name} --repeats 5 --json > {name}.json",
    )
    _bench_options(parser, lambda _: suite())


def _train_parser(suites: Any) -> None:
    models = ", ".join(f"{name} ({m.title})" for name, m in bench_train.MODELS.items())
    t = suites.add_parser(
        "train",
        help="training steps of an MLP and two convolutional networks",
        description="Training steps by model, policy, optimizer and batch, beside torch float32 "
        f"(if installed), in interleaved rounds on one pinned thread. Models: {models}.",
        epilog="example: pyqfw bench train --model har --batch 64 1 --repeats 5 --json >train.json",
    )
    t.add_argument(
        "--model",
        nargs="+",
        choices=bench_train.MODELS,
        default=tuple(bench_train.MODELS),
        help="one or several (default: all)",
    )
    t.add_argument(
        "--batch",
        type=_batch,
        nargs="+",
        metavar="N",
        help="rows of a step, one size or several (default: each model's own, such as 64 1)",
    )
    _bench_options(t, lambda args: bench_train.suite(args.model, args.batch))


def _mcu_parser(suites: Any) -> None:
    m = suites.add_parser(
        "mcu",
        help="instructions of layers and training steps on an emulated Cortex-M",
        description="Instructions, exact, of layers and whole training steps on an emulated "
        "Cortex-M, beside those recorded of CMSIS-NN and AIfES. Needs pyqfw[mcu] and scikit-learn; "
        "the Cortex-M55 is counted where arm-none-eabi-gcc and qemu-system-arm are there.",
        epilog="example: pyqfw bench mcu --json > mcu.json",
    )
    _report_options(m)
    m.set_defaults(command=_bench_mcu)


def _bench_options(
    parser: argparse.ArgumentParser, suite: Callable[[argparse.Namespace], bench.Suite]
) -> None:
    """What every suite has."""
    parser.add_argument(
        "--repeats", type=positive, default=15, metavar="N", help="rounds (default: %(default)s)"
    )
    isas = quant.core_info()["isas"]
    parser.add_argument("--isa", choices=isas, help="use this instruction set (default: the best)")
    _report_options(parser)
    parser.set_defaults(command=_bench, suite=suite)


def _report_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="machine-readable")
    parser.add_argument(
        "--into",
        metavar="FILE",
        help="also put the table into this Markdown file, under its heading",
    )
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if a bar is missed or none is there"
    )


def _batch(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"must be an integer from 1 to 4096, not {text!r}")
    return int(text)


def _elements(text: str) -> int:
    power = {"k": 10, "M": 20}.get(text[-1:], 0)
    digits = text[:-1] if power else text
    n = int(digits) << power if digits.isascii() and digits.isdigit() else 0
    if not 1 <= n <= 2**32 or n % 1024:
        raise argparse.ArgumentTypeError(
            f"must be a multiple of 1024 up to 4096M, such as 16M, 64k or 2048, not {text!r}"
        )
    return n


def _info(args: argparse.Namespace) -> int:
    core = quant.core_info()
    facts: dict[str, Any] = {
        "pyqfw": __version__,
        "core": core["version"],
        "compiler": core["compiler"],
        "isa": core["isa"],
        "isas": list(core["isas"]),
        "cpu": bench.cpu_model(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "extras": {name: _version(name) for name in EXTRAS},
    }
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    facts["isa"] = f"{facts['isa']} (available: {', '.join(facts.pop('isas'))})"
    extras = facts.pop("extras").items()
    facts["extras"] = ", ".join(f"{name} {version}" for name, version in extras if version) or "-"
    facts["missing"] = ", ".join(name for name, version in extras if not version) or "-"
    for key, value in facts.items():
        print(f"{key:<9} {value}")
    return 0


def _version(name: str) -> str | None:
    """The version of a module that could be imported, without importing it; else None."""
    spec = util.find_spec(name)
    if spec is None or spec.origin is None:  # a folder of that name is not the package
        return None
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _bench(args: argparse.Namespace) -> int:
    with bench.quiet() as pinned, quant.isa(args.isa) if args.isa else nullcontext():
        machine = bench.machine()
        suite = args.suite(args)
        rows = bench.run_suite(suite.cases, args.repeats, _progress())
    notes = [*suite.notes, *([] if machine["torch"] else [suite.without_torch])]
    if args.json:
        report = {
            "suite": suite.name,
            "machine": machine,
            **suite.setting,
            "repeats": args.repeats,
            "threads": 1,
            "pinned": pinned,
            "notes": notes,
            "rows": bench.to_json(rows),
        }
        print(json.dumps(report, indent=2))
    else:
        where = "pinned to one core" if pinned else "not pinned"
        told = ", ".join(f"{key} {value}" for key, value in machine.items() if value)
        print(f"{told}\n{suite.title}, {args.repeats} rounds, one thread, {where}\n")
        print(bench.table(rows))
        print("\n" + "\n".join(notes))
    if args.into:
        told = ", ".join(f"{key} {value}" for key, value in machine.items() if value)
        setting = f"{suite.title}; {args.repeats} rounds. {told}"
        bench.put_into(Path(args.into), suite.name, setting, bench.table(rows), notes)
    return _checked(suite.name, rows) if args.check else 0


def _bench_mcu(args: argparse.Namespace) -> int:
    rows = bench_mcu.run(_progress())
    compiler = bench_mcu.compiler()
    if args.json:
        content = {"suite": "mcu", "compiler": compiler, "notes": bench_mcu.NOTES}
        print(json.dumps({**content, "rows": bench_mcu.to_json(rows)}, indent=2))
    else:
        print(f"{compiler}\n\n{bench_mcu.table(rows)}\n\n" + "\n".join(bench_mcu.NOTES))
    if args.into:
        setting = f"emulated; {compiler}"
        bench.put_into(Path(args.into), "mcu", setting, bench_mcu.table(rows), bench_mcu.NOTES)
    return _checked("mcu", rows) if args.check else 0


def _checked(suite: str, rows: Sequence[bench.Row] | Sequence[bench_mcu.Row]) -> int:
    """The exit status: 0 if there are bars and all are met."""
    missed = [row.name for row in rows if row.met is False]
    if missed:
        print(f"pyqfw bench {suite}: below the bar: {'; '.join(missed)}", file=sys.stderr)
    elif all(row.met is None for row in rows):
        print(f"pyqfw bench {suite}: no row has a bar here: nothing to check", file=sys.stderr)
    else:
        return 0
    return 1


def _progress() -> Callable[[str], object] | None:
    """Shows the case under way where a person watches."""
    if not sys.stderr.isatty():
        return None

    def show(name: str) -> None:
        print(f"\r\033[K{name}", end="", file=sys.stderr, flush=True)

    return show


if __name__ == "__main__":
    sys.exit(main())
