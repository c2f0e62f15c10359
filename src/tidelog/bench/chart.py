"""The points of a suite as an SVG picture: a line for each data set, x by its logarithm.

No other program is needed to make it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from tidelog.bench.model import Outcome, Plot
from tidelog.bench.report import number_text

_LEFT, _TOP, _WIDTH, _HEIGHT, _LEGEND = 64.0, 52.0, 520.0, 300.0, 150.0
_FONT = "ui-monospace, 'DejaVu Sans Mono', monospace"
_COLOURS = ("#0969da", "#cf222e", "#1a7f37", "#8250df", "#bc4c00", "#bf3989", "#57606a", "#1b7c83")
_STYLE = """
    .page { fill: #ffffff; }
    .axis { stroke: #57606a; stroke-width: 1; }
    .limit { stroke: #953800; stroke-width: 1.3; stroke-dasharray: 6 4; }
    text { fill: #1f2328; font-size: 12px; }
    .title { font-size: 14px; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; }
      .axis { stroke: #9ea7b3; }
      .limit { stroke: #ffa657; }
      text { fill: #f0f6fc; }
    }
"""

Points = list[tuple[float, float]]


def chart(plot: Plot, outcomes: Sequence[Outcome]) -> str:
    """Return the picture; empty if there are no points."""
    lines = {
        outcome.case.data_set: points
        for outcome in outcomes
        if (points := [(f.point[0], f.point[1]) for f in outcome.figures if f.point])
    }
    return "\n".join(_Chart(plot, lines).elements()) + "\n" if lines else ""


class _Chart:
    def __init__(self, plot: Plot, lines: dict[str, Points]) -> None:
        self._plot, self._lines = plot, lines
        xs = [math.log10(x) for points in lines.values() for x, _ in points]
        self._first, self._last = math.floor(min(xs) + 0.05), math.ceil(max(xs) - 0.05)
        self._last = max(self._last, self._first + 1)
        self._most = 1.1 * max(plot.limit, *(y for points in lines.values() for _, y in points))

    def elements(self) -> Iterator[str]:
        plot = self._plot
        width, height = _LEFT + _WIDTH + _LEGEND, _TOP + _HEIGHT + 56
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
            f' width="{width:g}" height="{height:g}" font-family="{_FONT}" role="img">'
        )
        yield f"  <title>{escape(plot.title)}</title>"
        yield f"  <style>{_STYLE}  </style>"
        yield f'  <rect class="page" width="{width:g}" height="{height:g}"/>'
        yield self._text(16, 22, plot.title, "title")
        yield self._text(16, 42, plot.y)
        bottom = _TOP + _HEIGHT
        yield self._line("axis", _LEFT, _TOP, _LEFT, bottom)
        yield self._line("axis", _LEFT, bottom, _LEFT + _WIDTH, bottom)
        for power in range(self._first, self._last + 1):
            x = self._x(10.0**power)
            yield self._line("axis", x, bottom, x, bottom + 5)
            yield self._text(x, bottom + 20, f"{10**power:,}", anchor="middle")
        yield self._text(_LEFT + _WIDTH / 2, bottom + 42, plot.x, anchor="middle")
        step = 10.0 ** math.floor(math.log10(self._most))
        step = step if self._most / step > 2 else step / 5
        for number in range(int(self._most / step) + 1):
            y = self._y(number * step)
            yield self._line("axis", _LEFT - 5, y, _LEFT, y)
            yield self._text(_LEFT - 9, y + 4, number_text(number * step), anchor="end")
        y = self._y(plot.limit)
        yield self._line("limit", _LEFT, y, _LEFT + _WIDTH, y)
        yield self._text(_LEFT + _WIDTH + 8, y + 4, f"limit {number_text(plot.limit)}")
        for number, (name, points) in enumerate(self._lines.items()):
            yield from self._series(number, name, points)
        yield "</svg>"

    def _series(self, number: int, name: str, points: Points) -> Iterator[str]:
        colour = _COLOURS[number % len(_COLOURS)]
        places = [(self._x(x), self._y(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'  <polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>'
        for x, y in places:
            yield f'  <circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{colour}"/>'
        y = _TOP + _HEIGHT - 18.0 * (len(self._lines) - number)
        x = _LEFT + _WIDTH + 8
        yield f'  <rect x="{x:g}" y="{y - 9:.1f}" width="10" height="10" fill="{colour}"/>'
        yield self._text(x + 16, y, name.partition(", ")[2] or name)

    def _x(self, x: float) -> float:
        share = (math.log10(x) - self._first) / (self._last - self._first)
        return _LEFT + _WIDTH * share

    def _y(self, y: float) -> float:
        return _TOP + _HEIGHT * (1 - y / self._most)

    def _line(self, kind: str, x: float, y: float, to_x: float, to_y: float) -> str:
        return f'  <line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'

    def _text(self, x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
        named = f' class="{kind}"' if kind else ""
        return (
            f'  <text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
        )
