"""Metrics of a pipeline in the text format of Prometheus.

They are written to a file after each epoch, for the textfile collector of the node exporter, or
served on this machine only (metrics_server.py). Names of sources and sinks are labels; no row and
no address is in them. Rows of sources are counted over all runs, the rest since the process began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.io.atomic import write_all
from tidelog.io.offsets import RowCounts
from tidelog.spark.epoch_done import EpochDone

_Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class PipelineState:
    """What is known of a pipeline now."""

    epoch: int
    counts: Mapping[str, RowCounts]
    """By source."""
    sinks: Mapping[str, int | None]
    """The last epoch written to each sink."""
    failing: Sequence[tuple[str, str]]
    """What fails now: kind and name."""
    failures: Mapping[tuple[str, str], int]
    """How often each part has failed."""


@dataclass
class _Totals:
    epochs: int = 0
    seconds: float = 0.0
    inserted: int = 0
    deleted: int = 0
    written: int = 0
    late: int = 0
    jobs: int = 0
    tasks: int = 0
    last: EpochDone | None = field(default=None)


class Metrics:
    """Adds up epochs, and gives all metrics as text."""

    def __init__(self, name: str, look: Callable[[], PipelineState], file: Path | None) -> None:
        self._name, self._look, self._file = name, look, file
        self._totals = _Totals()

    def add(self, done: EpochDone) -> None:
        """Add an epoch, and write the file, if there is one."""
        total = self._totals
        total.epochs += 1
        total.seconds += done.seconds
        total.inserted += done.inserted
        total.deleted += done.deleted
        total.written += done.written
        total.late += done.late
        total.jobs += done.jobs
        total.tasks += done.tasks
        total.last = done
        self.write()

    def write(self) -> None:
        """Write the file, if there is one."""
        if self._file is not None:
            write_all({self._file: [self.text().encode()]})

    def text(self) -> str:
        """Return all metrics."""
        now, total = self._look(), self._totals
        last = total.last
        one: Mapping[str, str] = {}
        lines: list[str] = []

        def say(kind: str, name: str, about: str, samples: Iterable[_Sample]) -> None:
            lines.extend(self._metric(kind, name, about, list(samples)))

        say("gauge", "epoch", "The last committed epoch.", [(one, now.epoch)])
        say("counter", "epochs_total", "Epochs.", [(one, total.epochs)])
        for which, about in (
            ("received", "Rows that sources have given."),
            ("accepted", "Rows that fit."),
            ("quarantined", "Rows in the quarantine."),
        ):
            samples = [({"source": s}, getattr(c, which)) for s, c in now.counts.items()]
            # Rows leave the quarantine when they are replayed.
            kind, end = ("gauge", "") if which == "quarantined" else ("counter", "_total")
            say(kind, f"rows_{which}{end}", about, samples)
        say("counter", "rows_late_total", "Rows older than what is retained.", [(one, total.late)])
        say("counter", "rows_inserted_total", "Inserted given rows.", [(one, total.inserted)])
        say("counter", "rows_deleted_total", "Deleted given rows.", [(one, total.deleted)])
        say("counter", "rows_out_total", "Rows written to sinks.", [(one, total.written)])
        say("counter", "epoch_seconds_total", "Seconds of all epochs.", [(one, total.seconds)])
        if last is not None:
            say("gauge", "epoch_seconds", "Seconds of the last epoch.", [(one, last.seconds)])
        if last is not None and last.lag is not None:
            say("gauge", "lag_seconds", "The age of the oldest item of it.", [(one, last.lag)])
        say("counter", "spark_jobs_total", "Spark jobs.", [(one, total.jobs)])
        say("counter", "spark_tasks_total", "Spark tasks.", [(one, total.tasks)])
        sinks = [(s, -1 if e is None else e) for s, e in now.sinks.items()]
        about = "The last epoch written to a sink; -1 if there is none."
        say("gauge", "sink_epoch", about, [({"sink": s}, e) for s, e in sinks])
        say("gauge", "sink_behind_epochs", "Epochs that a sink lacks.",
            [({"sink": s}, now.epoch - e) for s, e in sinks])  # fmt: skip
        parts = {(k, n): 0 for k, n in (*(("sink", s) for s in now.sinks), *now.failures)}
        say("counter", "failures_total", "Failures of sources, sinks and the query.",
            [(_part(p), n) for p, n in {**parts, **now.failures}.items()])  # fmt: skip
        say("gauge", "failing", "Whether it fails now.",
            [(_part(p), p in now.failing) for p in parts])  # fmt: skip
        return "".join(f"{line}\n" for line in lines)

    def _metric(self, kind: str, name: str, about: str, samples: list[_Sample]) -> Iterable[str]:
        if not samples:
            return
        yield f"# HELP tidelog_{name} {about}"
        yield f"# TYPE tidelog_{name} {kind}"
        for labels, value in samples:
            pairs = {"pipeline": self._name, **labels}
            shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in pairs.items())
            yield f"tidelog_{name}{{{shown}}} {_number(value)}"


def _part(part: tuple[str, str]) -> Mapping[str, str]:
    return {"kind": part[0], "name": part[1]}


def _escaped(text: str) -> str:
    r"""Return the value of a label.

    >>> print(_escaped('a"b'))
    a\"b
    """
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    """Return a number; whole ones with all their digits.

    >>> _number(12345678), _number(True), _number(0.25)
    ('12345678', '1', '0.25')
    """
    return repr(float(value)) if isinstance(value, float) else str(int(value))
