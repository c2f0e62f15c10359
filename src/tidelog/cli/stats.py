"""The tables of `tidelog run --stats`: sizes, what each epoch did, and times."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.database.database import Database
from tidelog.engine.report import EpochReport

if TYPE_CHECKING:
    from rich.table import Table


class StepClock:
    """How long each step took."""

    def __init__(self) -> None:
        self.laps: list[tuple[str, float]] = []
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a step."""
        now = time.perf_counter()
        self.laps.append((name, now - self._last))
        self._last = now


def print_stats(
    database: Database, epochs: Sequence[tuple[str, EpochReport]], clock: StepClock
) -> None:
    """Print the tables to standard error; `epochs` are reports with their names."""
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=True)
    memory = database.memory
    sizes = Table("relation", "rows", "given", "derived by", "bytes", title="relations")
    for name in database.program.relations:
        rules = sum(rule.head.relation == name for rule in database.program.rules)
        sizes.add_row(
            name,
            f"{len(database.view(name)):,}",
            f"{database.given_count(name):,}",
            f"{rules} rule{'s' * (rules != 1)}" if rules else "",
            f"{memory[name]:,}" if name in memory else "",
        )
    own = [size for name, size in memory.items() if name not in database.program.relations]
    if own:
        sizes.add_row(f"the kernel's own ({len(own)})", "", "", "", f"{sum(own):,}")
    console.print(sizes)
    for name, report in epochs:
        console.print(_epoch_table(name, report))
    times = Table("step", "seconds", title=f"{database.engine} engine")
    for name, seconds in clock.laps:
        times.add_row(name, f"{seconds:.3f}")
    console.print(times)


def _epoch_table(name: str, report: EpochReport) -> Table:
    from rich.table import Table

    table = Table(
        "relations", "strategy", "did", "rows", "touched", "levels", "ms",
        title=f"{name}: {report.seconds * 1e3:,.1f} ms,"
        f" given +{report.given_inserted:,} -{report.given_deleted:,}",
    )  # fmt: skip
    idle = 0
    for layer in report.layers:
        if layer.choice == "nothing to do":
            idle += 1
            continue
        why = f": {layer.why}" if layer.why and report.epoch else ""
        table.add_row(
            ", ".join(layer.relations),
            layer.strategy,
            f"{layer.choice}{why}",
            f"+{layer.inserted:,} -{layer.deleted:,}",
            f"{layer.touched:,}",
            f"{layer.levels:,}" if layer.levels else "",
            f"{layer.seconds * 1e3:,.1f}",
        )
    if idle:
        table.add_row(f"{idle} others", "", "nothing to do", "", "", "", "")
    return table
