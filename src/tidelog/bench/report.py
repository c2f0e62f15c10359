"""Report figures as tables on a terminal, as Markdown and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidelog.bench.machine import describe
from tidelog.bench.model import (
    Figure,
    NotMeasuredError,
    Outcome,
    Scale,
    Suite,
    SuiteFigures,
    Target,
)
from tidelog.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("engine", "what", "time", "ratio", "peak memory", "state a row", "rows", "note")
TARGET_COLUMNS = ("target", "wanted", "found", "")
BEGIN, END = "<!-- tidelog bench: begin -->", "<!-- tidelog bench: end -->"


@dataclass(frozen=True)
class SuiteResult:
    """A suite and the results of its cases."""

    suite: Suite
    scale: Scale
    outcomes: Sequence[Outcome]

    def cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the lines of the table of figures, in the order of COLUMNS."""
        found = SuiteFigures(self.outcomes)
        for outcome in self.outcomes:
            case = outcome.case
            about = f"{case.data_set}: " if case.data_set else ""
            for figure in outcome.figures:
                ratio = found.ratio(outcome, figure)
                yield (
                    case.engine,
                    about + figure.what,
                    "" if figure.seconds is None else seconds_text(figure.seconds),
                    "" if ratio is None else f"{ratio_text(ratio)} ours",
                    bytes_text(figure.peak_bytes),
                    "" if figure.bytes_per_row is None else f"{figure.bytes_per_row:.1f} B",
                    "" if figure.rows is None else f"{figure.rows:,}",
                    figure.note,
                )
            if outcome.not_measured:
                what = about + ("the rest" if outcome.figures else "all")
                note = f"not measured: {outcome.not_measured}"
                yield case.engine, what, "", "", "", "", "", note

    def targets(self) -> Iterator[tuple[Target, float | None]]:
        """Yield the targets and what was found, None for what was not measured."""
        found = SuiteFigures(self.outcomes)
        for target in self.suite.targets:
            try:
                yield target, target.value(found)
            except NotMeasuredError:
                yield target, None

    def target_cells(self) -> Iterator[tuple[str, ...]]:
        """Yield the lines of the table of targets, in the order of TARGET_COLUMNS."""
        for target, value in self.targets():
            sign = "≥" if target.at_least else "≤"
            wanted = f"{sign} {number_text(target.limit)}{target.unit}"
            if value is None:
                yield target.what, wanted, "not measured", ""
                continue
            verdict = "met" if target.is_met(value) else "missed"
            if self.scale is not Scale.FULL:
                verdict = "small scale"
            yield target.what, wanted, f"{number_text(value)}{target.unit}", verdict

    def as_data(self) -> dict[str, Any]:
        """Return everything as data for JSON."""
        found = SuiteFigures(self.outcomes)
        return {
            "about": self.suite.about,
            "cases": [
                {
                    "engine": outcome.case.engine,
                    "data_set": outcome.case.data_set,
                    "not_measured": outcome.not_measured or None,
                    "figures": [
                        {**_figure_data(figure), "ratio": found.ratio(outcome, figure)}
                        for figure in outcome.figures
                    ],
                }
                for outcome in self.outcomes
            ],
            "targets": [
                {
                    "what": target.what,
                    "limit": target.limit,
                    "at_least": target.at_least,
                    "unit": target.unit.strip(),
                    "value": value,
                    "met": None if value is None else target.is_met(value),
                }
                for target, value in self.targets()
            ],
        }


def _figure_data(figure: Figure) -> dict[str, Any]:
    data = dataclasses.asdict(figure)
    del data["against"]
    return data


# --- for a terminal ---


def tables(result: SuiteResult) -> Iterator[Table]:
    """Yield the tables of a suite."""
    yield _table(f"{result.suite.name}: {result.suite.about}", COLUMNS, result.cells())
    if result.suite.targets:
        yield _table(f"{result.suite.name}: targets", TARGET_COLUMNS, result.target_cells())


def _table(title: str, columns: Sequence[str], lines: Iterator[tuple[str, ...]]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    right = {"time", "ratio", "peak memory", "state a row", "rows", "wanted", "found"}
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    for line in lines:
        table.add_row(*line)
    return table


# --- Markdown ---


def sections(
    about: dict[str, object], scale: Scale, results: Sequence[SuiteResult]
) -> dict[str, str]:
    """Return the tables of each suite as a section of a page, by the suite's name."""
    found = {}
    for result in results:
        parts = [f"### {result.suite.name}\n\n{_sentence(result.suite.about)}\n"]
        parts.append(f"Measured on {describe(about)}; scale {scale.value}.\n")
        parts.append(_markdown_table(COLUMNS, result.cells()))
        if result.suite.targets:
            parts.append(_markdown_table(TARGET_COLUMNS, result.target_cells()))
        found[result.suite.name] = "\n".join(parts)
    return found


def placed(measured: Mapping[str, str], page: str, order: Sequence[str]) -> str:
    """Return the page with sections of suites between its two markers, in a fixed order.

    Sections of suites that were not measured stay as they are. An empty page becomes the sections.
    """
    before, begin, rest = page.partition(BEGIN)
    between, end, after = rest.partition(END)
    if page.strip() and not (begin and end):
        raise UsageError(
            f"the page has no place for the tables: it needs the lines {BEGIN} and {END}"
        )
    kept = {part.partition("\n")[0]: f"### {part}" for part in between.split("### ")[1:]}
    united = {**kept, **measured}
    text = "\n".join(united[name].strip() + "\n" for name in order if name in united)
    return f"{before}{begin}\n\n{text}\n{end}{after}" if page.strip() else text


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:] + "."


def _markdown_table(columns: Sequence[str], lines: Iterator[tuple[str, ...]]) -> str:
    kept = list(lines)
    used = [
        i for i, _ in enumerate(columns) if any(line[i] for line in kept) or i < 2
    ]  # leave out columns without any entry
    rows = [[columns[i] for i in used], ["---"] * len(used)]
    rows += [[line[i].replace("|", "\\|") for i in used] for line in kept]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


# --- numbers, with three significant digits -----------------------------------------------------


def seconds_text(seconds: float) -> str:
    """Return a time in s, ms or µs."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{number_text(seconds / size)} {unit}"
    return f"{seconds * 1e6:.2f} µs"


def bytes_text(size: int) -> str:
    """Return a size in GB or MB."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def ratio_text(ratio: float) -> str:
    """Return a factor."""
    return f"{number_text(ratio)}x"


def number_text(number: float) -> str:
    """Return a number with three significant digits."""
    if number >= 100:
        return f"{number:,.0f}"
    if number >= 10:
        return f"{number:.1f}".removesuffix(".0")
    return f"{number:.3g}"
