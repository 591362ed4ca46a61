"""The page of results: tables of scores that were measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

DIGITS = 2


class Bar(NamedTuple):
    """What a row must reach: of its mean, or of its mean difference to its twin."""

    least: float
    of: str = "difference"


class Row(NamedTuple):
    twin: str | None = None
    bar: Bar | None = None


class Part(NamedTuple):
    """A section of the page: how its scores come about, and what its rows are."""

    title: str
    text: str
    rows: dict[str, Row]
    scores: Callable[[Any], Iterator[tuple[int, dict[str, list[float]]]]]


def page(parts: Mapping[str, Part], content: Mapping[str, Any]) -> str:
    lines = [
        "# Results",
        "",
        "Written by `examples/results.py` from docs/results.json, which has every score. A row and "
        "what it is compared with have the same seeds: the same initial weights, and the same data "
        "in the same order. The difference is the mean over these pairs, with its standard error.",
    ]
    for name, part in parts.items():
        if name in content:
            lines += section(part, content[name])
    return "\n".join(lines) + "\n"


def section(part: Part, found: dict[str, Any]) -> list[str]:
    minutes = found["cpu_seconds"] / 60
    seeds = f"{found['seeds']} seed{'s' if found['seeds'] > 1 else ''}"
    head = "| | mean | standard deviation | min | max | against | difference | bar | |"
    lines = ["", f"## {part.title}", "", part.text, ""]
    lines += [f"`{found['command']}`: {seeds}, {minutes:.1f} minutes on one core.", "", head]
    lines.append("|---|" + "---:|" * 4 + "---|---:|---|---|")
    scores = found["scores"]
    return lines + [line(name, row, scores) for name, row in part.rows.items() if name in scores]


def line(name: str, row: Row, scores: dict[str, list[float]]) -> str:
    values, d = np.array(scores[name]), DIGITS
    spread = values.std(ddof=1) if len(values) > 1 else 0.0
    cells = [name, *(f"{v:.{d}f}" for v in (values.mean(), spread, values.min(), values.max()))]
    gap = 0.0
    if row.twin is None:
        cells += ["", ""]
    else:
        pairs = values - np.array(scores[row.twin])
        gap = float(pairs.mean())
        error = pairs.std(ddof=1) / np.sqrt(len(pairs)) if len(pairs) > 1 else 0.0
        cells += [row.twin, f"{gap:+.{d}f} +- {error:.{d}f}"]
    if row.bar is None:
        cells += ["", ""]
    else:
        reached = gap if row.bar.of == "difference" else float(values.mean())
        met = "met" if reached >= row.bar.least else "MISSED"
        cells += [f"{row.bar.of} >= {row.bar.least:g}", met]
    return "| " + " | ".join(cells) + " |"
