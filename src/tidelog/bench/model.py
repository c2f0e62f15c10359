"""Suites of cases, the figures they yield, and the targets for figures.

A *case* is one engine on one data set. It runs in a process of its own, so that its peak memory is
measured alone and a crash affects no other case. It yields *figures*, one for each thing measured.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

OURS = "tidelog"


class Scale(enum.StrEnum):
    """How much is measured."""

    SMALL = "small"  # seconds: to check that everything works
    FULL = "full"  # minutes: the sizes of the targets


@dataclass(frozen=True)
class Request:
    """The parameters of a case."""

    scale: Scale
    data: Path | None
    """The folder of facts, if there is one."""

    @property
    def is_full(self) -> bool:
        """Whether to measure at full scale."""
        return self.scale is Scale.FULL

    def folder(self, name: str) -> Path:
        """Return a folder of facts that the case has declared in `files`."""
        assert self.data is not None
        return self.data / name


@dataclass(frozen=True)
class Figure:
    """One thing that was measured."""

    what: str
    seconds: float | None = None
    rows: int | None = None
    bytes_per_row: float | None = None
    """Bytes of state for each derived row."""
    note: str = ""
    against: str = ""
    """The figure of Tidelog to compare with, if it has another name."""
    point: tuple[float, float] | None = None
    """Where it is in the plot of its suite."""
    peak_bytes: int = 0
    """The peak memory of the process so far, set by the worker."""


@dataclass(frozen=True)
class BenchCase:
    """One engine on one data set."""

    engine: str
    measure: Callable[[Request], Iterator[Figure]]
    """Yields each figure when it is measured, so that a crash loses only later ones."""
    data_set: str = ""
    module: str | None = None
    """The package that a peer needs."""
    commands: tuple[str, ...] = ()
    """The commands that a peer needs."""
    files: tuple[str, ...] = ()
    """The files that it needs in the folder of facts."""
    full_only: bool = False
    seconds: float = 1800.0
    """The time limit."""

    @property
    def name(self) -> str:
        """Its name within the suite."""
        return f"{self.engine} on {self.data_set}" if self.data_set else self.engine

    @property
    def is_peer(self) -> bool:
        """Whether it measures another engine."""
        return self.engine != OURS


@dataclass(frozen=True)
class Outcome:
    """The result of a case."""

    case: BenchCase
    figures: tuple[Figure, ...] = ()
    not_measured: str = ""
    """Why the case, or the rest of it, was not measured."""


class NotMeasuredError(Exception):
    """A figure that a target needs was not measured."""


@dataclass(frozen=True)
class SuiteFigures:
    """The figures of a suite."""

    outcomes: Sequence[Outcome]

    def figure(self, what: str, data_set: str = "", engine: str = OURS) -> Figure:
        """Return a figure; raise NotMeasuredError if there is none."""
        for outcome in self.outcomes:
            if (outcome.case.engine, outcome.case.data_set) == (engine, data_set):
                for figure in outcome.figures:
                    if figure.what == what:
                        return figure
        raise NotMeasuredError

    def seconds(self, what: str, data_set: str = "", engine: str = OURS) -> float:
        """Return the time of a figure."""
        seconds = self.figure(what, data_set, engine).seconds
        if seconds is None:
            raise NotMeasuredError
        return seconds

    def ratio(self, outcome: Outcome, figure: Figure) -> float | None:
        """Return the time of a peer's figure divided by ours."""
        if not outcome.case.is_peer or figure.seconds is None:
            return None
        try:
            return figure.seconds / self.seconds(
                figure.against or figure.what, outcome.case.data_set
            )
        except NotMeasuredError:
            return None


@dataclass(frozen=True)
class Target:
    """A limit for a figure, or for a ratio of figures, at full scale."""

    what: str
    limit: float
    unit: str
    value: Callable[[SuiteFigures], float]
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        """Return whether a value meets the target."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Plot:
    """What the points of a suite's figures are; each data set is a line."""

    title: str
    x: str
    y: str
    limit: float
    """A value of y that no point should be above."""


@dataclass(frozen=True)
class Suite:
    """Cases about one topic."""

    name: str
    about: str
    cases: tuple[BenchCase, ...]
    targets: tuple[Target, ...] = field(default=())
    plot: Plot | None = None

    def case(self, name: str) -> BenchCase:
        """Return the case with this name."""
        return next(case for case in self.cases if case.name == name)
