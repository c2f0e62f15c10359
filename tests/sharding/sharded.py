"""A program in shards, all of them in this process: what a sharding says, carried out plainly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tidelog.engine.kernel import KernelEngine
from tidelog.io.tabular import to_arrow
from tidelog.logic.program import Program
from tidelog.sharding.router import Router
from tidelog.sharding.sharding import Sharding

Rows = frozenset[tuple[Any, ...]]
Given = Mapping[str, Any]


def routed(program: Program, router: Router, changes: Given) -> list[dict[str, set[Any]]]:
    """Return the rows of all relations for each shard, by name of the variant."""
    sharding = router.sharding
    found: list[dict[str, set[Any]]] = [{} for _ in range(sharding.grid.shards)]
    for relation, rows in changes.items():
        listed = list(rows)
        declared = program.relations[relation]
        table = (
            to_arrow(listed, declared, program.records)
            if declared.columns
            else pa.table({"": pa.array([True] * len(listed), pa.bool_())})
        )
        for variant in sharding.variants_of(relation):
            mask = router.mask(variant, table)
            for shard, part in enumerate(found):
                mine = np.flatnonzero(mask(shard)).tolist()
                if mine:
                    part[sharding.name_of(variant)] = {listed[i] for i in mine}
    return found


class InShards:
    """An engine for each shard, and what their views come to."""

    def __init__(self, program: Program, sharding: Sharding, given: Given) -> None:
        self._program, self.sharding = program, sharding
        self._router = Router(program, sharding)
        parts = routed(program, self._router, given)
        self.engines = [
            KernelEngine(self._router.program_of(shard), part) for shard, part in enumerate(parts)
        ]

    def apply(self, inserted: Given, deleted: Given) -> dict[str, tuple[Rows, Rows]]:
        """Commit an epoch; return what came to each view and what went from it."""
        before = {name: self._counts(name) for name in self._program.relations}
        more, less = (routed(self._program, self._router, rows) for rows in (inserted, deleted))
        effects = [
            engine.apply(more[shard], less[shard]) for shard, engine in enumerate(self.engines)
        ]
        changes = {}
        for name, variant in self.sharding.shown.items():
            change: Counter[Any] = Counter()
            for shard, effect in enumerate(effects):
                if name in effect.changes and self.sharding.grid.counts(
                    variant.partitioning, shard
                ):
                    change.update(effect.changes[name].inserted)
                    change.subtract(effect.changes[name].deleted)
            after = before[name].copy()
            after.update(change)
            assert after.keys() >= change.keys()
            changes[name] = (
                frozenset(row for row in change if not before[name][row] and after[row]),
                frozenset(row for row in change if before[name][row] and not after[row]),
            )
            assert min(after.values(), default=0) >= 0
        return changes

    def _counts(self, name: str) -> Counter[Any]:
        """Return how many copies of each row of a view count."""
        variant = self.sharding.shown[name]
        found: Counter[Any] = Counter()
        for shard, engine in enumerate(self.engines):
            if self.sharding.grid.counts(variant.partitioning, shard):
                found.update(engine.rows(name))
        if not variant.is_scattered:
            assert not found or max(found.values()) == 1, f"{name} counts twice"
        return found

    def rows(self, name: str) -> Rows:
        """Return the rows of a view."""
        return frozenset(self._counts(name))
