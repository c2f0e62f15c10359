"""What is measured: suites of cases, the figures they give, and the targets these are held to.

A *case* is one engine on one data set. It runs in a process of its own, so that its memory is its
own and a crash is only its own. It yields *figures*, one for each thing it measured.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

OURS = "tidelog"


class Scale(enum.StrEnum):
    """How much is measured."""

    SMALL = "small"  # seconds: to see that all works
    FULL = "full"  # minutes: what targets are about


@dataclass(frozen=True)
class Request:
    """What a case is asked to do."""

    scale: Scale
    data: Path | None
    """The folder of facts, if there is one."""

    @property
    def is_full(self) -> bool:
        """Whether this is about the real sizes."""
        return self.scale is Scale.FULL

    def folder(self, name: str) -> Path:
        """Return a folder of facts; the case has said that it needs it."""
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
    """The figure of ours to compare with, if it is not the one with the same name."""
    peak_bytes: int = 0
    """The peak memory of the process up to now; the worker fills it in."""


@dataclass(frozen=True)
class Case:
    """One engine on one data set."""

    engine: str
    measure: Callable[[Request], Iterator[Figure]]
    """Yields figures as it goes, so that those before a crash are kept."""
    data_set: str = ""
    module: str | None = None
    """The package that a peer needs."""
    files: tuple[str, ...] = ()
    """What it needs in the folder of facts."""
    full_only: bool = False
    seconds: float = 1800.0
    """It is ended after this long."""

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
    """What became of a case."""

    case: Case
    figures: tuple[Figure, ...] = ()
    not_measured: str = ""
    """Why the case, or the rest of it, was not measured."""


class NotMeasuredError(Exception):
    """A figure that a target is about is not there."""


@dataclass(frozen=True)
class Found:
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
        """Return how many times as long as ours a peer's figure took."""
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
    """What a figure, or a ratio of two, should be at full scale."""

    what: str
    limit: float
    unit: str
    value: Callable[[Found], float]
    at_least: bool = False

    def is_met(self, value: float) -> bool:
        """Return whether a value is good enough."""
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True)
class Suite:
    """Cases about one topic."""

    name: str
    about: str
    cases: tuple[Case, ...]
    targets: tuple[Target, ...] = field(default=())

    def case(self, name: str) -> Case:
        """Return the case with this name."""
        return next(case for case in self.cases if case.name == name)
