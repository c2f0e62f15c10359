"""Layers that are re-evaluated when something that they read has changed.

That is a layer for which `recompute` is forced, or a recursion that binds the groups of its own
aggregates, the rare recursion that `Elastic` cannot maintain. It is a program of its own
(`ReevaluatedProgram` in plan/lowered.py), with private relations that exist only while it is
evaluated. A recursion begins without any group, and every round inserts the groups that the one
before wants:

    groups = {}
    evaluate the program
    until groups = wanted:
        groups = wanted
        update the program

A round is an epoch of the private relations, and each layer is maintained by its usual strategy. So
a round costs what its new groups cost. Groups are only ever inserted: the value of one does not
depend on others, so what a round derives stays derived.

The next epoch starts from scratch, and the rows are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from tidelog.maintain.elastic import Elastic
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, Choice, Deltas, Strategy
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation, without
from tidelog.store.run import Run, Words
from tidelog.store.versions import Delta, Version


class Recompute(Strategy):
    """Maintains the relations of one layer by evaluating them again."""

    name = "recompute"

    def __init__(
        self,
        catalog: Catalog,
        layer: Layer,
        strategy_of: Callable[[Catalog, Layer], Strategy | None],
    ) -> None:
        """Make the private relations; `strategy_of` says how their layers are maintained."""
        assert layer.recompute is not None
        self._catalog = catalog
        self._names = layer.relations
        self._program = layer.recompute
        self._private = catalog.nested(layer.recompute.program)
        self.private_layers = [
            (inner, strategy)
            for inner in layer.recompute.program.layers
            if (strategy := strategy_of(self._private, inner)) is not None
        ]
        """The layers of the program with their strategies, from the lowest up."""
        self._strategies = [strategy for _, strategy in self.private_layers]
        for strategy in self._strategies:
            if isinstance(strategy, Elastic):
                strategy.budget = None  # rounds only insert: an update is never the longer way

    def bootstrap(self) -> None:
        """Evaluate the program."""
        with self.evaluated() as private:
            for name in self._names:
                rows = private.relations[name].rows()
                self._catalog.relations[name].replace(rows, None, _ones(rows))
        self.choice = Choice(BOOTSTRAP.what, BOOTSTRAP.why, self._rounds)

    def update(self) -> Deltas:
        """Evaluate the program if anything it reads has changed, and compare."""
        catalog = self._catalog
        changed = any(catalog.relations[name].delta for name in self._program.reads)
        if not changed and not any(catalog.given[name].delta for name in self._names):
            self.choice = NOTHING
            return {}
        deltas = {}
        with self.evaluated() as private:
            for name in self._names:
                relation = catalog.relations[name]
                before, after = relation.rows(Version.OLD), private.relations[name].rows()
                inserted, deleted = without(after, before), without(before, after)
                relation.remove(deleted)
                relation.add(inserted, None, _ones(inserted))
                deltas[name] = Delta(inserted, deleted)
        self.choice = Choice("bootstrap", "it is always re-evaluated", self._rounds)
        return deltas

    def check(self) -> None:
        """Assert that the relations are what the rules give."""
        with self.evaluated() as private:
            for relation in private.everything():
                relation.check()
            for strategy in self._strategies:
                strategy.check()
            for name in self._names:
                rows, stored = private.relations[name].rows(), self._catalog.relations[name].rows()
                assert np.array_equal(rows, stored), f"{name} is stale"

    # --- the private relations ---

    @contextmanager
    def evaluated(self) -> Iterator[Catalog]:
        """Evaluate the program; return its private relations, until they are cleared again."""
        try:
            self._begin()
            self._rounds = 0
            for strategy in self._strategies:
                self._private.stamp = object()  # the layers below have their sizes now
                strategy.bootstrap()
            for relation in self._private.passed_on:
                relation.replace_runs([])
            stored = self._private.relations
            wanted = {name: stored[name].rows() for name in self._program.groups.values()}
            while any(rows.shape[1] for rows in wanted.values()):
                wanted = self._round(wanted)
            yield self._private
        finally:
            self._clear()

    def _round(self, wanted: Mapping[str, Words]) -> dict[str, Words]:
        """Insert groups, and update the program; return the groups that are wanted in addition."""
        private = self._private
        for name, asked in self._program.groups.items():
            relation = private.relations[name]
            relation.record(relation.change(wanted[asked], relation.no_rows()))
        for strategy in self._strategies:
            for name, delta in strategy.update().items():
                private.relations[name].record(delta)
        deltas = {name: private.relations[name].delta for name in wanted}
        assert not any(delta.deleted.shape[1] for delta in deltas.values()), "a group has gone"
        for relation in private.everything():
            if relation.touched:
                relation.commit()
                private.note_size(relation)
        self._rounds += 1
        rows = sum(private.relations[name].stored for name in self._names)
        private.meter.reached(self._rounds, rows)
        return {name: delta.inserted for name, delta in deltas.items()}

    def _begin(self) -> None:
        """Fill the inputs: what the program reads, as it is after the epoch."""
        private, catalog = self._private, self._catalog
        private.meter = catalog.meter
        private.relayout()  # domains may have widened
        for name in self._program.reads:
            _copy(catalog.relations[name], private.relations[name])
        for name in self._names:
            _copy(catalog.given[name], private.given[name])

    def _clear(self) -> None:
        """Forget all rows, also those of a round that has failed."""
        for relation in self._private.everything():
            relation.abort()
            relation.replace_runs([])


def _copy(relation: StoredRelation, into: StoredRelation) -> None:
    """Put the rows after the epoch into another relation; arrays are shared where that is all."""
    into.replace_runs([Run(run.words) for run in relation.alive(Version.NEW)])


def _ones(rows: Words) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.ones(rows.shape[1], np.int64)
