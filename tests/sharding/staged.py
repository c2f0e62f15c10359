"""A program in stages and shards, all of them in this process: what a layout says, done plainly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.sharding.sharded import routed
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program
from tidelog.sharding.layout import ShardLayout
from tidelog.sharding.router import Router

Rows = frozenset[tuple[Any, ...]]
Given = Mapping[str, Any]


class InStages:
    """An engine for each stage and shard, and what the views come to."""

    def __init__(self, program: Program, layout: ShardLayout, given: Given) -> None:
        self._program, self.layout = program, layout
        self._routers = [
            Router(stage, sharding)
            for stage, sharding in zip(layout.programs, layout.shardings, strict=True)
        ]
        self.engines: list[list[KernelEngine]] = []
        for stage, router in enumerate(self._routers):
            parts = self._parts(stage, given)
            for exchange in layout.exchanges:
                if exchange.target == stage:
                    rows = self._sent(exchange.source, exchange, None)[0]
                    self._add(parts, stage, {exchange.received: rows})
            self.engines.append(
                [KernelEngine(router.program_of(i), part) for i, part in enumerate(parts)]
            )

    def _parts(self, stage: int, given: Given) -> list[dict[str, set[Any]]]:
        own = {n: rows for n, rows in given.items() if self.layout.home[n] == stage}
        return routed(self.layout.programs[stage], self._routers[stage], own)

    def _add(self, parts: list[dict[str, set[Any]]], stage: int, rows: Given) -> None:
        more = routed(self.layout.programs[stage], self._routers[stage], rows)
        for part, new in zip(parts, more, strict=True):
            for name, found in new.items():
                assert name not in part
                part[name] = found

    def _sent(self, stage: int, exchange, effects) -> tuple[set[Any], set[Any]]:  # type: ignore[no-untyped-def]
        """Return what the shards of a stage send: all rows, or those that have changed."""
        more: set[Any] = set()
        less: set[Any] = set()
        sharding = self.layout.shardings[stage]
        variant = sharding.shown[exchange.relation]
        for shard, engine in enumerate(self.engines[stage]):
            if not sharding.grid.counts(variant.partitioning, shard):
                continue
            if effects is None:
                came, went = engine.rows(exchange.relation), ()
            else:
                change = effects[shard].changes.get(exchange.relation)
                came, went = ((), ()) if change is None else (change.inserted, change.deleted)
            end = (shard,) if exchange.is_counted else ()
            for rows, sent in ((came, more), (went, less)):
                new = {(*row, *end) for row in rows}
                assert not new & sent, "two shards send the same row"
                sent.update(new)
        return more, less

    def apply(self, inserted: Given, deleted: Given) -> dict[str, tuple[Rows, Rows]]:
        """Commit an epoch; return what came to each view and what went from it."""
        before = {name: self._counts(name) for name in self._program.relations}
        changes: dict[str, tuple[Rows, Rows]] = {}
        done: list[Any] = []
        for stage in range(len(self._routers)):
            more, less = self._parts(stage, inserted), self._parts(stage, deleted)
            for exchange in self.layout.exchanges:
                if exchange.target == stage:
                    came, went = self._sent(exchange.source, exchange, done[exchange.source])
                    self._add(more, stage, {exchange.received: came})
                    self._add(less, stage, {exchange.received: went})
            done.append([e.apply(more[i], less[i]) for i, e in enumerate(self.engines[stage])])
        for name in self._program.relations:
            stage = self.layout.home[name]
            variant = self.layout.shown[name]
            change: Counter[Any] = Counter()
            for shard, effect in enumerate(done[stage]):
                counts = self.layout.grid.counts(variant.partitioning, shard)
                if name in effect.changes and counts:
                    change.update(effect.changes[name].inserted)
                    change.subtract(effect.changes[name].deleted)
            after = before[name].copy()
            after.update(change)
            assert min(after.values(), default=0) >= 0
            changes[name] = (
                frozenset(row for row in change if not before[name][row] and after[row]),
                frozenset(row for row in change if before[name][row] and not after[row]),
            )
        return changes

    def _counts(self, name: str) -> Counter[Any]:
        """Return how many copies of each row of a view count."""
        variant = self.layout.shown[name]
        found: Counter[Any] = Counter()
        for shard, engine in enumerate(self.engines[self.layout.home[name]]):
            if self.layout.grid.counts(variant.partitioning, shard):
                found.update(engine.rows(name))
        if not variant.is_scattered:
            assert not found or max(found.values()) == 1, f"{name} counts twice"
        return found

    def rows(self, name: str) -> Rows:
        """Return the rows of a view."""
        return frozenset(self._counts(name))
