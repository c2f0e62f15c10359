"""A program in shards, all of them in this process: what a sharding says, carried out plainly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tidelog.engine.kernel import KernelEngine
from tidelog.engine.shards import Router, routed
from tidelog.logic.program import Program
from tidelog.plan.sharding import Sharding

Rows = frozenset[tuple[Any, ...]]
Given = Mapping[str, Any]


class InShards:
    """An engine for each shard, and what their views come to."""

    def __init__(self, program: Program, sharding: Sharding, given: Given) -> None:
        self._program, self.sharding = program, sharding
        self._router = Router(program, sharding)
        parts = routed(self._router, given)
        self.engines = [
            KernelEngine(self._router.program_of(shard), part) for shard, part in enumerate(parts)
        ]

    def apply(self, inserted: Given, deleted: Given) -> dict[str, tuple[Rows, Rows]]:
        """Commit an epoch; return what came to each view and what went from it."""
        before = {name: self._counts(name) for name in self._program.relations}
        more, less = routed(self._router, inserted), routed(self._router, deleted)
        effects = [
            engine.apply(more[shard], less[shard]) for shard, engine in enumerate(self.engines)
        ]
        changes = {}
        for name, version in self.sharding.shown.items():
            change: Counter[Any] = Counter()
            for shard, effect in enumerate(effects):
                if name in effect.changes and self.sharding.grid.counts(version.placement, shard):
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
        version = self.sharding.shown[name]
        found: Counter[Any] = Counter()
        for shard, engine in enumerate(self.engines):
            if self.sharding.grid.counts(version.placement, shard):
                found.update(engine.rows(name))
        if not version.is_scattered:
            assert not found or max(found.values()) == 1, f"{name} counts twice"
        return found

    def rows(self, name: str) -> Rows:
        """Return the rows of a view."""
        return frozenset(self._counts(name))
