"""Layers that are re-evaluated when something that they read has changed.

That is a layer for which `recompute` is forced, or a recursion that binds the groups of its own
aggregates or keeps only some of its candidates, which `Elastic` cannot maintain. It is a program of
its own (`ReevaluatedProgram` in plan/lowered.py), with private relations that exist only while it
is evaluated. A recursion begins without any group, and every round inserts the groups that the one
before wants:

    groups = {}
    evaluate the program
    until groups = wanted:
        groups = wanted
        update the program

A round is an epoch of the private relations, and each layer is maintained by its usual strategy. So
a round costs what its new groups cost. Groups are only ever inserted: the value of one does not
depend on others, so what a round derives stays derived.

Candidates of relations that keep only some of them are inserted in the same way, when all groups
have values. They are only ever inserted, too; the rows that are kept may go again.

The next epoch starts from scratch, and the rows are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from tidelog.join.gather import distinct
from tidelog.maintain.choosing import chosen_rows, ranks
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
            candidates = self._program.candidates
            wanted = {name: stored[name].rows() for name in self._program.groups.values()}
            found = {into: [stored[c.source].rows()] for into, c in candidates.items()}
            while True:
                if any(rows.shape[1] for rows in wanted.values()):
                    asked = {into: wanted[of] for into, of in self._program.groups.items()}
                else:
                    # All groups have values, so these are all candidates of the round.
                    asked = {into: self._kept(into, parts) for into, parts in found.items()}
                    found = {into: [] for into in found}
                if not any(rows.shape[1] for rows in asked.values()):
                    break
                self._round(asked)
                wanted = {of: self._delta(of).inserted for of in wanted}
                for into, of in candidates.items():
                    found[into].append(self._delta(of.source).inserted)
                self._commit()
            yield self._private
        finally:
            self._clear()

    def _round(self, asked: Mapping[str, Words]) -> None:
        """Insert rows, and update the program."""
        private = self._private
        for name, rows in asked.items():
            relation = private.relations[name]
            new = _missing(relation, rows)
            relation.record(relation.change(new, relation.no_rows()))
        for strategy in self._strategies:
            for name, delta in strategy.update().items():
                private.relations[name].record(delta)

    def _delta(self, name: str) -> Delta:
        """Return what a round has changed."""
        return self._private.relations[name].delta

    def _commit(self) -> None:
        """End a round."""
        private = self._private
        for relation in private.everything():
            if relation.touched:
                relation.commit()
                private.note_size(relation)
        self._rounds += 1
        rows = sum(private.relations[name].stored for name in self._names)
        private.meter.reached(self._rounds, rows)

    def _kept(self, into: str, parts: list[Words]) -> Words:
        """Return the new candidates among some rows, or those of them that are chosen."""
        relation = self._private.relations[into]
        rows = np.concatenate([*parts, relation.no_rows()], axis=1)
        new = _missing(relation, distinct(rows)[0])
        choice = self._program.candidates[into].choice
        if choice is None or not new.shape[1]:
            return new
        ordinals = relation.ordinals(new)
        places = ranks(ordinals, self._private.types(into), self._private.codec)
        before = relation.ordinals(relation.rows())
        chosen = chosen_rows(ordinals, places, before, choice.keys)
        return np.ascontiguousarray(new[:, chosen])

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


def _missing(relation: StoredRelation, rows: Words) -> Words:
    """Return those of some sorted rows that a relation does not have."""
    return np.ascontiguousarray(rows[:, ~relation.find(rows).present])


def _copy(relation: StoredRelation, into: StoredRelation) -> None:
    """Put the rows after the epoch into another relation; arrays are shared where that is all."""
    into.replace_runs([Run(run.words) for run in relation.alive(Version.NEW)])


def _ones(rows: Words) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.ones(rows.shape[1], np.int64)
