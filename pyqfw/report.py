"""report: one self-contained HTML page about a net and its training."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from . import report_figures as figures
from ._files import replace_file
from .counters import CounterLog
from .errors import QfwError
from .fit import History
from .metrics import confusion
from .report_facts import Codes, blocks, codes, instructions
from .session import Session

if TYPE_CHECKING:
    from .mcu import Run
    from .plan import Plan

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222 }
body { max-width: 1100px; margin: 2em auto; padding: 0 1em }
h1 { font-size: 1.6em } h2 { font-size: 1.2em; margin-top: 2em; border-bottom: 1px solid #ddd }
figure { margin: 1em 0 } figure img { max-width: 100% }
figcaption { color: #555; font-size: 0.9em }
table { border-collapse: collapse; font-size: 0.85em }
td, th { padding: 2px 10px; text-align: left }
th { border-bottom: 1px solid #999 } td.n { text-align: right; font-variant-numeric: tabular-nums }
.facts td:first-child { color: #555; white-space: nowrap } .wide { overflow-x: auto }
"""


def report(
    net: Session,
    path: str | PathLike[str] = "report.html",
    *,
    history: History | None = None,
    twin: History | None = None,
    data: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
    classes: Sequence[str] = (),
    counters: CounterLog | None = None,
    run: Run | None = None,
    title: str = "pyqfw report",
) -> Path:
    """Writes a page with what is given, and returns its path; the net stays as it is.

    Always: the memory map of a step, codes of parameters and state. `history` of `fit`, `twin` of
    the float32 twin: loss and accuracy. `data` (x, y): the confusion matrix, codes and quantization
    errors of a step's wires, errors and gradients. `counters`: a `q.CounterLog` that was a callback
    of `fit`. `run`: of `q.mcu.run`, instructions by operation. Needs matplotlib (extra `plot`).
    """
    if not isinstance(net, Session):
        raise QfwError(f"report needs a q.Session, not {type(net).__name__}")
    for name, value in (("history", history), ("twin", twin)):
        if value is not None and not isinstance(value, History):
            raise QfwError(f"report: {name} must be the History of fit, not {value!r}")
    parts = [f"<h1>{escape(title)}</h1>", _facts(net)]
    if history is not None and len(history):
        text = "Training loss is the mean over the epoch, each row seen by the net of its step."
        parts += _figure("Learning", figures.curves(history, twin), text)
    if data is not None and _has_classes(net):
        matrix = confusion(net, *data)
        right = float(np.trace(matrix)) / max(int(matrix.sum()), 1)
        text = f"{int(matrix.sum())} rows, {right:.2%} on the diagonal."
        parts += _figure("Confusion matrix", figures.confusion(matrix, classes), text)
    text = (
        "Operations of a step across, bytes of the arena up, each tensor a block from its first "
        "use to its last. Below the dotted line is what lasts between steps."
    )
    parts += _figure("Memory map of a step", figures.memory(net.plan, blocks(net.plan)), text)
    parts += _codes(codes(net, *(data or (None, None))))
    if counters is not None and counters.epochs:
        text = "What rounding and clamping did in each epoch (net.counters())."
        parts += _figure("Counters over time", figures.counters(counters.epochs), text)
    if run is not None:
        parts += _device(run)
    target = Path(fspath(path))
    replace_file(target, _page(title, parts).encode())
    return target


def _page(title: str, parts: Sequence[str]) -> str:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    body = "\n".join(parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _figure(title: str, svg: str, text: str) -> list[str]:
    """An image that is a part of the page."""
    data = base64.b64encode(svg.encode()).decode()
    image = f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{data}">'
    caption = f"<figcaption>{escape(text)}</figcaption>"
    return [f"<h2>{escape(title)}</h2>", f'<figure class="wide">{image}{caption}</figure>']


def _table(rows: Sequence[Sequence[object]], head: Sequence[str] = (), kind: str = "") -> str:
    titles = "".join(f"<th>{escape(h)}</th>" for h in head)
    lines = [f"<tr>{titles}</tr>"] if head else []
    for row in rows:
        cells = (
            f'<td class="n">{c:,}</td>' if isinstance(c, int) else f"<td>{escape(str(c))}</td>"
            for c in row
        )
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table class="{kind}">{"".join(lines)}</table></div>'


def _facts(net: Session) -> str:
    plan: Plan = net.plan
    asked, memory = plan.request, plan.memory()
    rows: list[tuple[object, ...]] = [
        ("policy", repr(asked.policy)),
        ("loss", repr(asked.loss)),
        ("optimizer", repr(asked.optimizer)),
        ("inputs", f"{asked.input_shape}, {asked.preprocess or 'as they are'}"),
        ("steps done, batch, seed", f"{net.steps}, {plan.batch}, {plan.seed}"),
        ("RAM (arena), bytes", f"{plan.arena_bytes:,}, of which {memory['lasting']:,} last"),
        ("flash (plan and constants), bytes", f"{plan.flash_bytes:,}"),
        ("multiply-accumulates a row", f"{plan.macs:,}"),
    ]
    layers = [
        (
            node.path,
            repr(node.layer),
            "x".join(map(str, node.out_shape)),
            sum(int(np.prod(p.shape)) for p in node.layer.parameters()),
            "learns" if node.learns else "",
        )
        for node in plan.nodes
    ]
    head = ("path", "layer", "output", "parameters", "")
    return _table(rows, kind="facts") + "<h2>Layers</h2>" + _table(layers, head)


def _has_classes(net: Session) -> bool:
    loss = net.plan.request.loss
    return loss is not None and loss.target_shape(net.plan.nodes[-1].out_shape) == ()


def _codes(found: Sequence[Codes]) -> list[str]:
    if not found:
        return []
    shown = min(len(found), figures.MOST_HISTOGRAMS)
    text = (
        f"How often which code occurs (logarithmic), of the {shown} largest tensors. dB: signal to "
        "error of a tensor against what it was converted from; what a product requantizes at once "
        "has no such source."
    )
    rows = [
        (
            c.name,
            c.role,
            c.format,
            int(c.counts.sum()),
            f"{c.used:.1%}",
            "" if c.decibels is None else f"{c.decibels:.1f} dB",
        )
        for c in found
    ]
    head = ("tensor", "role", "format", "elements", "codes used", "signal to error")
    return [*_figure("Codes", figures.histograms(found), text), _table(rows, head)]


def _device(run: Run) -> list[str]:
    found = instructions(run)
    told = f"{run.cost.target}: RAM {run.ram} bytes (stack {run.stack}), flash {run.flash} bytes"
    if run.instructions is not None:
        told += f", {run.instructions:.0f} instructions a step"
    return _figure("On the device", figures.device(found), told)
