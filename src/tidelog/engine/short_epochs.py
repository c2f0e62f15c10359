"""Epochs of few rows, each run by the kernel in one call (kernel/epoch.py).

Such an epoch is tried if all layers that may depend on its rows can take part
(maintain/epoch_program.py). If something unusual happens, the kernel undoes it, and the strategies
run the epoch from its start. So what is committed, observed and reported does not depend on who
ran it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tidelog.engine.given import Encoded
from tidelog.engine.protocol import EpochObserver, Ignored, NoObserver
from tidelog.engine.report import LayerReport
from tidelog.join.joins import LARGE_CHANGE
from tidelog.kernel import epoch_layout as e
from tidelog.maintain.epoch_program import EpochProgram
from tidelog.maintain.strategy import NOTHING, UPDATE, Strategy
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words
from tidelog.store.versions import Delta
from tidelog.values.types import Row

Layers = Sequence[tuple[Layer, Strategy]]
MOST_ROWS = 128  # given rows of an epoch that is tried
_LONGEST_PAUSE = 63  # epochs


class ShortEpoch(NamedTuple):
    """What a short epoch has done."""

    given: tuple[int, int]
    """How many given rows were inserted and deleted."""
    ignored: dict[str, Ignored]
    changed: Mapping[str, tuple[StoredRelation, Delta]]
    """The net changes, by relation; that of given rows of a derived relation is left out."""
    work: Mapping[str, int]
    """The relations whose layers had work, and how many rows their joins have found."""

    def layers(self, layers: Layers) -> tuple[LayerReport, ...]:
        """Return what each layer did. Their times are not measured one by one."""
        return tuple(self._report(layer, strategy) for layer, strategy in layers)

    def _report(self, layer: Layer, strategy: Strategy) -> LayerReport:
        deltas = [self.changed[name][1] for name in layer.relations if name in self.changed]
        inserted = sum(delta.inserted.shape[1] for delta in deltas)
        deleted = sum(delta.deleted.shape[1] for delta in deltas)
        touched = sum(self.work.get(name, 0) for name in layer.relations)
        has_run = not self.work.keys().isdisjoint(layer.relations)
        choice = UPDATE if has_run else NOTHING
        return LayerReport(
            layer.relations, strategy.name, choice.what, choice.why, 0.0, inserted, deleted, touched
        )


class ShortEpochs:
    """Runs the short epochs of one program."""

    def __init__(self, catalog: Catalog, layers: Layers) -> None:
        self._catalog, self._layers = catalog, layers
        self._watching = [(layer, s) for layer, s in layers if s.wants_times]
        self._program: EpochProgram | None = None
        self._wanted: dict[int, StoredRelation] = {}
        """The relations whose given rows have changed in short epochs, by identity."""
        self._most = MOST_ROWS
        self._pause = self._pauses = 0
        """How many epochs are not tried, and how many that were when this was last decided."""
        self._refused: set[str] = set()
        """Relations whose changes only the strategies can follow, for one stamp of the catalog."""
        self._refused_at: object = None
        self.is_on = True
        """Whether short epochs are tried. Tests compare both ways."""
        self.count = 0
        """How many epochs were run."""

    def prepare(self) -> None:
        """Make the program for changes of large relations, after a load.

        Then the first short epoch takes no longer than others.
        """
        large = [
            name for name, given in self._catalog.given.items() if given.stored >= LARGE_CHANGE
        ]
        if large and self.is_on:
            program = self._program = self._analysed()
            self._ready([name for name in large if program.is_eligible(self._catalog.given[name])])

    def run(
        self, encoded: Encoded, observer: EpochObserver, *, report_ignored: bool
    ) -> ShortEpoch | None:
        """Run an epoch and commit it; return None if the strategies must run it instead.

        What the observer raises aborts the epoch.
        """
        if not self.is_on or (self._refused and self._refuses(encoded)):
            return None
        rows = 0
        for adds, removes in encoded.values():
            rows += adds.shape[1] + removes.shape[1]
        if not 0 < rows <= self._most:
            return None
        if self._pause:
            self._pause -= 1
            return None
        given = self._catalog.given
        changes = [
            (given[name], np.ascontiguousarray(adds), np.ascontiguousarray(removes))
            for name, (adds, removes) in encoded.items()
        ]
        program = self._ready(encoded)
        if program is None:
            return None
        is_observed = type(observer) is not NoObserver
        start = time.perf_counter()
        status = program.run(changes, commits=not is_observed)
        while status != e.DONE:
            if status == e.TOO_MANY:
                self._retreat(rows)
            if not program.provide(status):
                return None
            status = program.run(changes, commits=not is_observed)
        self._pauses = 0
        work = program.work()
        for layer, strategy in self._watching:
            if not work.keys().isdisjoint(layer.relations):
                found = sum(work.get(name, 0) for name in layer.relations)
                if strategy.was_short(time.perf_counter() - start, found):
                    self._program = None
        if rows == self._most:
            self._most = min(2 * rows, MOST_ROWS)
        changed = program.changed
        if is_observed:
            self._observe(program, observer, changed)
        self._follow(changed)
        self.count += 1
        ignored = program.ignored() if report_ignored else ()
        return ShortEpoch(
            program.given,
            self._decoded(ignored, encoded) if ignored else {},
            {relation.name: (relation, delta) for relation, delta in changed},
            work,
        )

    def _retreat(self, rows: int) -> None:
        """Try smaller epochs from now on; if one row is too many, none for a while."""
        if rows > 1:
            self._most = rows // 2
        else:
            self._pause = self._pauses = min(2 * self._pauses + 1, _LONGEST_PAUSE)

    def _refuses(self, encoded: Encoded) -> bool:
        """Return whether it is known that only the strategies can follow a change."""
        if self._refused_at is self._catalog.stamp:
            return not self._refused.isdisjoint(encoded)
        self._refused.clear()
        return False

    def _ready(self, names: Collection[str]) -> EpochProgram | None:
        """Return the program for these given rows, made or brought up to date if it has to be."""
        program = self._program
        given = [self._catalog.given[name] for name in names]
        is_known = all(id(relation) in self._wanted for relation in given)
        if program is not None and program.is_attached and is_known:
            return program
        if program is None or not program.is_current:
            program = self._program = self._analysed()
        refused = {name for name in names if not program.is_eligible(self._catalog.given[name])}
        if refused:
            self._refused |= refused
            self._refused_at = self._catalog.stamp
            return None
        self._wanted.update((id(relation), relation) for relation in given)
        if not is_known or not program.is_finished:
            program.finish(self._wanted.values())
        return program if program.attach() else None

    def _analysed(self) -> EpochProgram:
        """Return the steps of all layers; nothing is planned for them yet."""
        program = EpochProgram(self._catalog)
        for layer, strategy in self._layers:
            if not strategy.add_steps(program):
                program.refuse(layer)
        return program

    def _observe(
        self,
        program: EpochProgram,
        observer: EpochObserver,
        changed: Sequence[tuple[StoredRelation, Delta]],
    ) -> None:
        """Let the observer see the epoch, and commit it."""
        try:
            for relation, delta in changed:
                relation.record(delta)
            observer.given()
            observer.computed()
        except BaseException:
            program.abort()
            raise
        finally:
            for relation, _ in changed:
                relation.forget_delta()
        program.commit()

    def _follow(self, changed: Sequence[tuple[StoredRelation, Delta]]) -> None:
        """Let what is computed from the rows of relations follow their changes."""
        for relation, delta in changed:
            if relation.followers:
                relation.record(delta)
                for follower in relation.followers.values():
                    follower.commit(relation)
                relation.forget_delta()

    def _decoded(
        self, ignored: Sequence[tuple[StoredRelation, bool, Words]], encoded: Encoded
    ) -> dict[str, Ignored]:
        catalog = self._catalog
        names = {id(catalog.given[name]): name for name in encoded}
        found: dict[str, tuple[set[Row], set[Row]]] = {}
        for relation, deletes, row in ignored:
            name = names[id(relation)]
            found.setdefault(name, (set(), set()))[deletes].update(catalog.decode(name, row))
        return {n: Ignored(frozenset(new), frozenset(old)) for n, (new, old) in found.items()}
