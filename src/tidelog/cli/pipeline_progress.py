"""What `tidelog pipeline run` shows: a table of the last epochs, or a line for each of them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.table import Table

    from tidelog.spark.epoch_done import EpochDone

_SHOWN = 12  # epochs in the table
_COLUMNS = ("epoch", "rows in", "quarantined", "given", "out", "lag", "how", "jobs", "time")
"""Of the table; `jobs` has the numbers of Spark's jobs and of their tasks."""


@contextmanager
def shown_epochs(name: str) -> Iterator[Callable[[EpochDone], None]]:
    """Yield a function that shows an epoch: in a live table on a terminal, else as a plain line."""
    if not sys.stderr.isatty():
        yield _print_line
        return
    from rich.console import Console
    from rich.live import Live

    last: deque[EpochDone] = deque(maxlen=_SHOWN)
    with Live(console=Console(stderr=True), auto_refresh=False) as live:

        def show(done: EpochDone) -> None:
            last.append(done)
            live.update(_table(name, last), refresh=True)

        yield show


def _print_line(done: EpochDone) -> None:
    print(describe(done), file=sys.stderr, flush=True)


def describe(done: EpochDone) -> str:
    """Return an epoch as one line."""
    values = dict(zip(_COLUMNS, _values(done), strict=True))
    parts = [
        f"epoch {values['epoch']}",
        f"{values['rows in']} rows in",
        f"{values['quarantined']} quarantined",
        *([f"{done.late:,} late"] if done.late else []),
        f"{values['given']} given",
        f"{values['out']} rows out",
        *([f"lag {values['lag']}"] if values["lag"] else []),
        values["how"],
        f"{done.jobs:,} job{'s' * (done.jobs != 1)}",
        f"{done.tasks:,} task{'s' * (done.tasks != 1)}",
        values["time"],
    ]
    return ", ".join(parts)


def _values(done: EpochDone) -> list[str]:
    lag = "" if done.lag is None else f"{done.lag:.1f} s"
    return [
        str(done.epoch),
        f"{done.received:,}",
        f"{done.quarantined:,}",
        f"+{done.inserted:,} -{done.deleted:,}",
        f"{done.written:,}",
        lag,
        done.how,
        f"{done.jobs}/{done.tasks}",
        f"{done.seconds:.2f} s",
    ]


def _table(name: str, last: deque[EpochDone]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=name, box=SIMPLE_HEAD, pad_edge=False)
    for column in _COLUMNS:
        table.add_column(
            column, justify="left" if column == "how" else "right", no_wrap=column != "lag"
        )
    for done in last:
        style = "yellow" if done.quarantined else None
        table.add_row(*_values(done), style=style)
    return table
