"""Views of a sharded pipeline, put together from what the shards have.

Where a row can be in several shards, a view has it once: it came with its first copy, and goes with
its last one. How many copies there are is counted when somebody asks what has changed, and from
then on kept up to date; it can always be counted again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from tidelog.engine.protocol import NetChange
from tidelog.io.tabular import to_arrow
from tidelog.logic.program import Program
from tidelog.plan.sharding import Sharding
from tidelog.spark.conversion import rows_of
from tidelog.spark.shard_manifest import Committed
from tidelog.values.types import Row


class ShardViews:
    """Reads views; `parts` returns the rows of one as the shards have them."""

    def __init__(
        self,
        program: Program,
        sharding: Sharding,
        folder: Path,
        parts: Callable[[str], list[pa.Table]],
    ) -> None:
        self._program, self._sharding = program, sharding
        self._folder, self._parts = folder, parts
        self._copies: dict[str, Counter[Row]] = {}

    def values(self, view: str, tables: Iterable[pa.Table]) -> Iterator[Row]:
        """Yield the rows of tables, without what stands behind the columns of the view."""
        relation = self._program.relations[view]
        for table in tables:
            yield from rows_of(table, relation, self._program.records)

    def table(self, view: str, parts: list[pa.Table]) -> pa.Table:
        """Return the rows of a view as one table."""
        relation = self._program.relations[view]
        if parts and relation.columns and not self._sharding.shown[view].is_scattered:
            return pa.concat_tables(parts)
        rows = set(self.values(view, parts))
        return to_arrow(sorted(rows, key=str), relation, self._program.records)

    def committed(self, views: Mapping[str, Sequence[str]]) -> None:
        """Count what an epoch has changed."""
        for view, copies in self._copies.items():
            for file in views.get(view, ()):
                self._count(copies, view, file)

    def net(self, view: str, epochs: Sequence[Committed]) -> Iterator[tuple[int, NetChange]]:
        """Yield what came to a view and went from it, in each of the last epochs.

        The copies after the last epoch are known; those before an epoch are those after it without
        what it has changed.
        """
        signed: list[Counter[Row]] = []
        for epoch in epochs:
            found: Counter[Row] = Counter()
            for file in epoch.views.get(view, ()):
                self._count(found, view, file)
            signed.append(found)
        scattered = self._sharding.shown[view].is_scattered
        copies: dict[Row, int] = {}
        if scattered:
            now = self._copies_of(view)
            copies = {row: now[row] for change in signed for row in change}
            for change in signed:
                for row, sign in change.items():
                    copies[row] -= sign
        for epoch, change in zip(epochs, signed, strict=True):
            came, went = set(), set()
            for row, sign in change.items():
                before = copies[row] if scattered else int(sign < 0)
                copies[row] = before + sign
                if sign and not before:
                    came.add(row)
                elif sign and not copies[row]:
                    went.add(row)
            yield epoch.epoch, NetChange(frozenset(came), frozenset(went))

    def _count(self, copies: Counter[Row], view: str, file: str) -> None:
        """Add what a shard has changed to the copies of rows."""
        table = pa.ipc.open_stream((self._folder / file).read_bytes()).read_all()
        for row, came in zip(self.values(view, [table]), table["+"].to_pylist(), strict=True):
            copies[row] += 1 if came else -1

    def _copies_of(self, view: str) -> Counter[Row]:
        """Return how many shards have each row of a scattered view now."""
        if view not in self._copies:
            self._copies[view] = Counter(self.values(view, self._parts(view)))
        return self._copies[view]
