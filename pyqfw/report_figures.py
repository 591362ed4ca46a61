"""The figures of a report, each as an SVG: matplotlib, the extra `plot`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from ._arrays import Array
from .counters import Counters
from .errors import QfwError
from .lower.ir import ROLES, SECTIONS
from .report_facts import Block, Codes

if TYPE_CHECKING:
    from .fit import History
    from .plan import Plan

COLOURS = dict(
    zip(ROLES, ("#4269d0", "#9c6b4e", "#a463f2", "#3ca951", "#ff725c", "#b8bcc4"), strict=True)
)
_NET, _TWIN = "#4269d0", "#efb118"
_LINES = ("-", "--", "-.", ":")  # matplotlib has ten colours
MOST_HISTOGRAMS = 36
_NAMED = 16  # lines with a name
_LABELLED = 0.03  # of the map's height: lower blocks have no room for a name


def _pyplot() -> Any:
    try:
        import matplotlib
        from matplotlib import figure
    except ImportError as e:
        raise QfwError("a report needs matplotlib: pip install 'pyqfw[plot]'") from e
    matplotlib.rcParams.update(
        {"svg.fonttype": "path", "svg.hashsalt": "pyqfw", "font.size": 9, "axes.axisbelow": True}
    )
    return figure


def _drawing(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Any, Any]:
    drawn = _pyplot().Figure(figsize=(width, height), layout="constrained")
    axes = drawn.subplots(rows, columns, squeeze=False)
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    return drawn, axes


def _over_epochs(axis: Any, title: str) -> None:
    axis.set(xlabel="epoch", title=title)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.grid(alpha=0.3)


def _svg(drawn: Any) -> str:
    file = StringIO()
    drawn.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def curves(net: History, twin: History | None) -> str:
    """Loss and accuracy over the epochs, beside the twin."""
    accuracy = "val_accuracy" in net.to_dict()
    drawn, axes = _drawing(9, 3.2, 1, 1 + accuracy)
    for history, colour, name in ((net, _NET, "net"), (twin, _TWIN, "float32 twin")):
        if history is None:
            continue
        lists = history.to_dict()
        epochs = np.arange(1, len(history) + 1)
        axes[0, 0].plot(epochs, lists["loss"], color=colour, label=f"{name}, training")
        if "val_loss" in lists:
            label = f"{name}, validation"
            axes[0, 0].plot(epochs, lists["val_loss"], "--", color=colour, label=label)
        if accuracy and "val_accuracy" in lists:
            percent = 100 * np.array(lists["val_accuracy"])
            axes[0, 1].plot(epochs, percent, color=colour, label=name)
    for axis, title in zip(axes.flat, ("loss", "validation accuracy, %"), strict=False):
        _over_epochs(axis, title)
        axis.legend(frameon=False)
    return _svg(drawn)


def confusion(matrix: Array, classes: Sequence[str]) -> str:
    """Rows: what it was; columns: what the net says. Colour: share of the row."""
    n = len(matrix)
    names = list(classes) if len(classes) == n else [str(i) for i in range(n)]
    side = 2.2 + 0.5 * n
    drawn, axes = _drawing(side + 1, side)
    axis = axes[0, 0]
    shares = matrix / np.maximum(matrix.sum(1, keepdims=True), 1)
    axis.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.ndindex(n, n):
        if matrix[i, j]:
            colour = "white" if shares[i, j] > 0.5 else "black"
            axis.text(j, i, str(matrix[i, j]), ha="center", va="center", color=colour, fontsize=7)
    axis.set_xticks(range(n), names, rotation=45, ha="right")
    axis.set_yticks(range(n), names)
    axis.set(xlabel="what the net says", ylabel="what it was")
    return _svg(drawn)


def memory(plan: Plan, found: Sequence[Block]) -> str:
    """Operations across, bytes up, tensors as blocks."""
    from matplotlib.patches import Rectangle

    ops = len(plan.ops)
    drawn, axes = _drawing(min(4 + 0.28 * ops, 18), 6.5)
    axis = axes[0, 0]
    for b in found:
        size = (b.last - b.first, b.end - b.begin)
        box = Rectangle((b.first, b.begin), *size, fc=COLOURS[b.role], ec="white", lw=0.6)
        axis.add_patch(box)
        if size[1] > _LABELLED * plan.arena_bytes and size[0] >= 2:
            middle = (b.first + size[0] / 2, b.begin + size[1] / 2)
            told = b.name if len(b.name) <= 5 * size[0] else b.name[: 5 * size[0]]
            axis.text(*middle, told, ha="center", va="center", fontsize=6)
    axis.axhline(plan.layout.persistent_bytes, color="black", lw=0.8, ls=":")
    at = 0
    for section in SECTIONS[:4]:
        count = len(plan.program.sections[section])
        if count > 1:  # room for its name
            axis.axvline(at, color="black", lw=0.5, alpha=0.4)
            axis.text(at + 0.1, 1.01 * plan.arena_bytes, section, fontsize=8)
        at += count
    axis.set(xlim=(0, ops), ylim=(0, 1.06 * plan.arena_bytes), ylabel="bytes of the arena")
    labels = [f"{op.kernel} {op.layer}" for op in plan.ops]
    axis.set_xticks(np.arange(ops) + 0.5, labels, rotation=90, fontsize=6)
    shown = [role for role in ROLES if any(b.role == role for b in found)]
    handles = [Rectangle((0, 0), 1, 1, fc=COLOURS[role]) for role in shown]
    axis.legend(handles, shown, loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return _svg(drawn)


def histograms(tensors: Sequence[Codes], columns: int = 4) -> str:
    """How often which code occurs, of the largest tensors; on top how far each is off what it was
    made of."""
    largest = sorted(tensors, key=lambda c: -int(c.counts.sum()))[:MOST_HISTOGRAMS]
    found = [c for c in tensors if any(c is one for one in largest)]
    rows = -(-len(found) // columns)
    drawn, axes = _drawing(12, 1.9 * rows, rows, columns)
    for axis in axes.flat[len(found) :]:
        axis.set_visible(False)
    for axis, c in zip(axes.flat, found, strict=False):
        axis.stairs(c.counts, c.edges, fill=True, color=COLOURS[c.role])
        told = "" if c.decibels is None else f", {c.decibels:.0f} dB"
        axis.set_title(f"{c.name}\n{c.used:.0%} of its codes used{told}", fontsize=7)
        axis.set_yscale("symlog")
        axis.tick_params(labelsize=6)
        axis.set_ylim(bottom=0)
    return _svg(drawn)


def counters(log: Sequence[Counters]) -> str:
    """Shares of codes that saturated, and of updates that moved nothing, over the epochs; the
    tensors with the largest have names."""
    drawn, axes = _drawing(11, 3.6, 1, 2)
    epochs = np.arange(1, len(log) + 1)
    shares: Mapping[str, str] = {
        "saturated_fraction": "codes that a clamp changed, %",
        "zero_update_fraction": "updates that moved no code, %",
    }
    for axis, (name, title) in zip(axes.flat, shares.items(), strict=True):
        found = {t: 100 * np.array([getattr(c[t], name) for c in log]) for t in log[-1]}
        some = [t for t, values in found.items() if np.nan_to_num(values).any()]
        some.sort(key=lambda t: -float(np.nanmax(found[t])))
        for i, tensor in enumerate(some):
            look = {"ls": _LINES[i // 10 % 4], "label": tensor, "zorder": 3}
            look = look if i < _NAMED else {"color": "#ddd"}
            axis.plot(epochs, found[tensor], marker=".", **look)
        _over_epochs(axis, title)
        if some:
            axis.legend(fontsize=6, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
        else:
            axis.text(0.5, 0.5, "none", transform=axis.transAxes, ha="center")
    return _svg(drawn)


def device(found: Sequence[tuple[str, float]]) -> str:
    """Instructions of a step, by operation."""
    drawn, axes = _drawing(9, 1.2 + 0.22 * len(found))
    axis = axes[0, 0]
    names, counts = [name for name, _ in found], [count for _, count in found]
    axis.barh(np.arange(len(found)), counts, color=_NET)
    axis.set_yticks(np.arange(len(found)), names, fontsize=7)
    axis.set_ylim(len(found) - 0.4, -0.6)
    axis.set(xlabel="instructions a step")
    axis.grid(axis="x", alpha=0.3)
    return _svg(drawn)
