"""A picture of a run: rows, latency and lag of each epoch, as an SVG file.

rows        a bar for each epoch: the rows that came in
latency     how long the epoch took, sinks included
lag         how old its oldest item was when it was written out
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from tidelog.io.atomic import replace_text

if TYPE_CHECKING:
    from tidelog.spark.epoch_done import EpochDone

_WIDTH, _PANEL, _LEFT, _RIGHT, _TOP, _GAP = 760, 120, 72, 20, 62, 46
_INK, _FAINT, _GRID = "#1f2937", "#6b7280", "#e5e7eb"
_COLORS = {"rows in": "#2563eb", "latency, s": "#d97706", "lag, s": "#059669"}


def write_chart(path: Path, name: str, epochs: Sequence[EpochDone]) -> None:
    """Write the picture of some epochs."""
    replace_text(path, chart(name, epochs))


def chart(name: str, epochs: Sequence[EpochDone]) -> str:
    """Return the picture of some epochs as the text of an SVG file."""
    panels: dict[str, list[float | None]] = {
        "rows in": [float(done.received) for done in epochs],
        "latency, s": [done.seconds for done in epochs],
        "lag, s": [done.lag for done in epochs],
    }
    height = _TOP + len(panels) * (_PANEL + _GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{_LEFT}" y="22" font-size="15" fill="{_INK}">{escape(_title(name, epochs))}'
        "</text>",
    ]
    numbers = [done.epoch for done in epochs]
    for i, (label, values) in enumerate(panels.items()):
        top = _TOP + i * (_PANEL + _GAP)
        parts += _panel(label, values, numbers, top)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _title(name: str, epochs: Sequence[EpochDone]) -> str:
    rows = sum(done.received for done in epochs)
    jobs, tasks = sum(done.jobs for done in epochs), sum(done.tasks for done in epochs)
    return f"{name}: {len(epochs):,} epochs, {rows:,} rows in, {jobs:,} Spark jobs, {tasks:,} tasks"


def _panel(
    label: str, values: Sequence[float | None], numbers: Sequence[int], top: int
) -> list[str]:
    known = [value for value in values if value is not None]
    most = _rounded_up(max(known, default=0.0))
    width, bottom = _WIDTH - _LEFT - _RIGHT, top + _PANEL
    step = width / max(1, len(values))
    parts = [f'<text x="{_LEFT}" y="{top - 8}" fill="{_INK}">{label}</text>']
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * _PANEL
        parts.append(
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}"'
            f' stroke="{_GRID}"/>'
            f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{_FAINT}">'
            f"{_number(share * most)}</text>"
        )
    for at, value in enumerate(values):
        if value is not None:
            size = _PANEL * value / most
            x = _LEFT + at * step + 0.15 * step
            parts.append(
                f'<rect x="{x:.1f}" y="{bottom - size:.1f}" width="{0.7 * step:.1f}"'
                f' height="{size:.1f}" fill="{_COLORS[label]}"/>'
            )
    every = math.ceil(len(numbers) / 15) or 1
    parts += [
        f'<text x="{_LEFT + (at + 0.5) * step:.1f}" y="{bottom + 16}" text-anchor="middle"'
        f' fill="{_FAINT}">{number}</text>'
        for at, number in enumerate(numbers)
        if at % every == 0
    ]
    return parts


def _rounded_up(value: float) -> float:
    """Return the next number of the form 1, 2 or 5 times a power of ten.

    >>> _rounded_up(0.31), _rounded_up(2500), _rounded_up(0)
    (0.5, 5000.0, 1.0)
    """
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
