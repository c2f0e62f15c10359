"""Views of a sharded pipeline, combined from the shards in this process: for small views and tests.

Spark does the same for sinks, without the rows passing through the driver (spark/scattered.py).

A row of a scattered view can be in several shards. The view has it once: it is inserted with its
first copy and deleted with its last one. Copies are counted when the changes of the view are first
read, and maintained from then on. The counts are not stored, because they can be computed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tidelog.engine.protocol import NetChange
from tidelog.io.conversion import rows_of
from tidelog.io.tabular import to_arrow
from tidelog.logic.program import Program
from tidelog.sharding.cells import Cells
from tidelog.sharding.manifest import Committed
from tidelog.values.types import Row


class ShardViews:
    """Reads views; `parts` returns the rows of a view, a table for each part of a shard."""

    def __init__(
        self,
        program: Program,
        cells: Cells,
        folder: Path,
        parts: Callable[[str], list[pa.Table]],
    ) -> None:
        self._program, self._cells = program, cells
        self._folder, self._parts = folder, parts
        self._copies: dict[str, Counter[Row]] = {}

    def values(self, view: str, tables: Iterable[pa.Table]) -> Iterator[Row]:
        """Yield the rows of tables, without columns that follow those of the view."""
        relation = self._program.relations[view]
        for table in tables:
            yield from rows_of(table, relation, self._program.records)

    def table(self, view: str, parts: list[pa.Table]) -> pa.Table:
        """Return the rows of a view as one table."""
        relation = self._program.relations[view]
        if parts and relation.columns and not self._cells.is_scattered(view):
            return pa.concat_tables(parts)
        rows = set(self.values(view, parts))
        return to_arrow(sorted(rows, key=str), relation, self._program.records)

    def committed(self, views: Mapping[str, Sequence[str]]) -> None:
        """Update the counts of copies after an epoch."""
        for view, copies in self._copies.items():
            for file in views.get(view, ()):
                self._count(copies, view, file)

    def net(self, view: str, epochs: Sequence[Committed]) -> Iterator[tuple[int, NetChange]]:
        """Yield the net change of a view in each of `epochs`, which end with the last one.

        The numbers of copies after the last epoch are known. Those before an epoch are those after
        it minus its changes.
        """
        signed: list[Counter[Row]] = []
        for epoch in epochs:
            found: Counter[Row] = Counter()
            for file in epoch.views.get(view, ()):
                self._count(found, view, file)
            signed.append(found)
        scattered = self._cells.is_scattered(view)
        copies: dict[Row, int] = {}
        if scattered:
            now = self._copies_of(view)
            copies = {row: now[row] for change in signed for row in change}
            for change in signed:
                for row, sign in change.items():
                    copies[row] -= sign
        for epoch, change in zip(epochs, signed, strict=True):
            inserted, deleted = set(), set()
            for row, sign in change.items():
                before = copies[row] if scattered else int(sign < 0)
                copies[row] = before + sign
                if sign and not before:
                    inserted.add(row)
                elif sign and not copies[row]:
                    deleted.add(row)
            yield epoch.epoch, NetChange(frozenset(inserted), frozenset(deleted))

    def _count(self, copies: Counter[Row], view: str, file: str) -> None:
        """Add the changes of a shard to the numbers of copies."""
        table = pq.ParquetFile(self._folder / file).read()
        for row, op in zip(self.values(view, [table]), table["op"].to_pylist(), strict=True):
            copies[row] += 1 if op == "+" else -1

    def _copies_of(self, view: str) -> Counter[Row]:
        """Return the number of shards that have each row of a scattered view."""
        if view not in self._copies:
            self._copies[view] = Counter(self.values(view, self._parts(view)))
        return self._copies[view]
