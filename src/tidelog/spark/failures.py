"""Current failures of sources, sinks and the streaming query: reported, and recorded for `status`.

The record in the state folder has names, times and the kind of each error, but not its text: a
database may quote rows in it.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tidelog.errors import DataError
from tidelog.io.atomic import read_json, replace_text
from tidelog.runtime.retry import Clock, Retry
from tidelog.spark.environment import scrub
from tidelog.spark.retries import Attempts

_KIND = re.compile(r"\[[A-Z_.]+\]|(?:\w+\.)*\w*(?:Exception|Error)\b")


@dataclass(frozen=True)
class Failure:
    """A source, a sink or the query, that fails."""

    kind: str
    """`source`, `sink` or `query`."""
    name: str
    since: str
    """The time of the first failure."""
    tries: int
    error: str
    """The kind of the last error."""


class Failures:
    """The parts of a pipeline that fail, and when to try each again."""

    def __init__(self, file: Path, clock: Clock, report: Callable[[str], object]) -> None:
        self._file, self._clock, self._report = file, clock, report
        self._attempts: dict[tuple[str, str], Attempts] = {}
        self.counts: dict[tuple[str, str], int] = {}
        """All failures of this run, by kind and name."""

    def of(self, kind: str, name: str, retry: Retry) -> Attempts:
        """Return the attempts of a part."""
        return self._attempts.setdefault((kind, name), Attempts(retry, self._clock))

    def failed(self, kind: str, name: str, error: BaseException) -> None:
        """Note a failure, and report it."""
        attempts = self._attempts[kind, name]
        attempts.failed(error)
        self.counts[kind, name] = self.counts.get((kind, name), 0) + 1
        then = "it needs help" if attempts.is_lasting else f"again in {attempts.wait_seconds:.1f} s"
        text = scrub(str(error) or type(error).__name__).partition("\n  help: ")[0]
        self._report(f"{kind} `{name}` failed, {_times(attempts.failures)}, {then}: {text}")
        self._record()

    def succeeded(self, kind: str, name: str) -> None:
        """Note that a part works."""
        attempts = self._attempts[kind, name]
        if attempts.error is not None:
            self._report(f"{kind} `{name}` works again, after {_times(attempts.failures)}")
            attempts.succeeded()
            self._record()

    def now(self) -> Iterator[Failure]:
        """Return what fails now."""
        for (kind, name), attempts in self._attempts.items():
            if attempts.error is not None:
                since = dt.datetime.fromtimestamp(attempts.since, dt.UTC)
                yield Failure(
                    kind, name, since.isoformat(timespec="seconds"), attempts.failures,
                    kind_of(attempts.error),
                )  # fmt: skip

    def errors(self, kind: str) -> list[tuple[str, BaseException]]:
        """Return the names of the parts of a kind that fail now, and their errors."""
        return [
            (name, attempts.error)
            for (its_kind, name), attempts in self._attempts.items()
            if its_kind == kind and attempts.error is not None
        ]

    def check(self) -> None:
        """Raise an error that names the sources and sinks that fail, if any does."""
        found = [(kind, *pair) for kind in ("source", "sink") for pair in self.errors(kind)]
        if len(found) == 1:
            raise found[0][2]
        if found:
            names = ", ".join(f"{kind} `{name}`" for kind, name, _ in found)
            lines = "".join(f"\n  {kind} `{name}`: {error}" for kind, name, error in found)
            raise DataError(f"{len(found)} parts of the pipeline failed: {names}{lines}")

    def clear(self) -> None:
        """Forget what an earlier run has noted and recorded."""
        for attempts in self._attempts.values():
            attempts.succeeded()
        self._record()

    def _record(self) -> None:
        found = [vars(failure) for failure in self.now()]
        if found:
            replace_text(self._file, json.dumps(found) + "\n")
        else:
            self._file.unlink(missing_ok=True)


def recorded(file: Path) -> list[Failure]:
    """Return what a pipeline has recorded in its state folder."""
    return [Failure(**keys) for keys in read_json(file) or ()]


def kind_of(error: BaseException) -> str:
    """Return the kind of an error, without anything that it quotes.

    >>> kind_of(DataError("sink `x`: org.postgresql.util.PSQLException: row (1) is bad"))
    'org.postgresql.util.PSQLException'
    >>> kind_of(ValueError("1"))
    'ValueError'
    """
    found = _KIND.search(str(error))
    return found[0] if found else type(error).__name__


def print_report(text: str) -> None:
    """Print a report to standard error."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number:,} times"
