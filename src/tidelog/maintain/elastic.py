"""Recursive relations: elastic bootstrap and update (the paper's section 3).

State per row: its *level*, the first iteration that derives it (0 for given rows), stored as its
mark; and its *count*, the number of rule instantiations that derive it in that very iteration.

`bootstrap` is semi-naive evaluation that counts (maintain/fixpoint.py). `update` repairs levels and
counts so that they equal those of a bootstrap on the new facts, the paper's Theorem 3.5
(maintain/repair.py). An update that would take longer than a bootstrap is abandoned for one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from tidelog.join.bodies import BodyJoins, by_body
from tidelog.join.joins import HEAD
from tidelog.join.rules import RuleJoins, reused_joins
from tidelog.kernel import join_layout as k
from tidelog.maintain.fixpoint import Fixpoint
from tidelog.maintain.repair import Repair
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE, Choice, Deltas, Strategy
from tidelog.maintain.switch import BUDGET, Switch
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.versions import Delta, Version


class OverBudgetError(Exception):
    """The update takes too long; a bootstrap is cheaper."""


class Elastic(Strategy):
    """Maintains the relations of one recursive layer."""

    name = "elastic"

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        self._catalog = catalog
        self._names = layer.relations
        self._joins = [RuleJoins(catalog, rule) for rule in layer.rules]
        self._relations = {name: catalog.relations[name] for name in layer.relations}
        self._by_body: tuple[object, list[BodyJoins]] | None = None
        self._switch = Switch()
        self._layer = layer
        self._deadline = float("inf")
        self._is_in_files = False
        self.budget: float | None = BUDGET
        """A share of a bootstrap's time, for an update that cannot be predicted; None: no limit."""

    def bootstrap(self) -> None:
        """Compute the relations from scratch."""
        start = time.perf_counter()
        levels = Fixpoint(self._catalog, self._bodies(), self._relations).run()
        self._switch.bootstrapped(time.perf_counter() - start)
        self.choice = Choice("bootstrap", BOOTSTRAP.why, levels)

    def _bodies(self) -> list[BodyJoins]:
        """Return the joins of a bootstrap, planned by earlier ones."""
        if self._by_body is None or self._by_body[0] is not self._joins:
            self._by_body = self._joins, by_body(self._catalog, self._joins)
        return self._by_body[1]

    def prepare(self) -> None:
        """Prepare the joins of the level repair."""
        start = time.perf_counter()
        for joins in self._joins:
            for place in range(len(joins.rule.atoms)):
                joins.prepare(place, k.LOSE)
                joins.prepare(place, k.SETTLE)
            joins.prepare(HEAD, k.LOOK_BACK)
        for relation in self._relations.values():
            relation.primary.descriptors()
        self._switch.bootstrap_seconds += time.perf_counter() - start

    def loaded(self) -> None:
        """Prepare the joins again: no update should pay for orders out of its budget."""
        seconds = self._switch.bootstrap_seconds
        self.prepare()
        self._switch.bootstrap_seconds = seconds

    @property
    def joins(self) -> list[RuleJoins]:
        """The joins of its rules."""
        return self._joins

    def reuse(self, other: Strategy) -> None:
        """Take over the planned joins of another strategy, for the rules that both have."""
        if isinstance(other, Elastic):
            self._joins = reused_joins(self._joins, other.joins)

    def update(self) -> Deltas:
        """Bring the relations up to date; by a bootstrap when an update takes too long."""
        inserted = sum(delta.inserted.shape[1] for delta in self._changes())
        deleted = sum(delta.deleted.shape[1] for delta in self._changes())
        if not inserted and not deleted:
            self.choice = NOTHING
            return {}
        allowed, why = float("inf"), ""
        if self.budget is not None:
            verdict = self._switch.verdict(inserted, deleted, self.budget)
            why = verdict.why
            if verdict.seconds is None:
                return self._rebuild(why)
            allowed = verdict.seconds
        if self._is_in_files:
            self._read_files()
        start = time.perf_counter()
        self._deadline = start + allowed
        repair = Repair(self._catalog, self._joins, self._relations, self._pace)
        try:
            deltas = repair.run()
            self.choice = Choice(UPDATE.what, UPDATE.why, repair.buckets)
            self._switch.updated(inserted, deleted, time.perf_counter() - start)
            return deltas
        except OverBudgetError:
            for relation in self._relations.values():
                relation.abort()
            return self._rebuild(why)
        finally:
            self._deadline = float("inf")

    def check(self) -> None:
        """Assert that every row has a count, and given rows are at level 0."""
        for name, relation in self._relations.items():
            for run in relation.alive(Version.NEW):
                assert run.counts is not None, f"{name} has no counts"
                assert (run.counts > 0).all(), f"{name} has rows that nothing derives"
            given = self._catalog.given[name].rows(Version.NEW)
            found = relation.find(given)
            assert found.present.all(), f"{name} lacks given rows"
            assert not found.marks.any(), f"{name} has given rows above level 0"

    def statistics(self) -> Mapping[str, float]:
        """Return what bootstraps and updates have cost."""
        return self._switch.statistics()

    def restore_statistics(self, statistics: Mapping[str, float]) -> None:
        """Restore what `statistics` returned."""
        self._switch.restore_statistics(statistics)

    def restored(self) -> None:
        """Note that the relations are still in files, and no join is planned."""
        self._is_in_files = True

    def _read_files(self) -> None:
        """Read what an update reads before its clock starts: the budget excludes reading files."""
        self.loaded()
        read = {atom.relation for joins in self._joins for atom in joins.rule.atoms}
        for name in read.union(self._names):
            for index in self._catalog.relations[name].indexes.values():
                index.descriptors()
        self._is_in_files = False

    def _changes(self) -> Iterator[Delta]:
        for name in self._names:
            if self._catalog.given[name].delta:
                yield self._catalog.given[name].delta
        for joins in self._joins:
            for atom in joins.rule.atoms:
                if atom.relation not in self._relations:
                    delta = self._catalog.relations[atom.relation].delta
                    if delta:
                        yield delta

    def _rebuild(self, why: str) -> Deltas:
        """Bootstrap beside the old state; return how the new one differs from it."""
        start = time.perf_counter()
        into = {name: relation.empty_copy() for name, relation in self._relations.items()}
        levels = Fixpoint(self._catalog, self._bodies(), into).run()
        deltas, read = {}, self._catalog.shown(self._layer)
        for name, relation in self._relations.items():
            for order in relation.indexes:
                into[name].index(order).descriptors()
            into[name].drop_orders(relation.indexes)
            deltas[name] = relation.replace_at_commit(into[name], shown=name in read)
        self._switch.bootstrapped(time.perf_counter() - start)
        self.choice = Choice("bootstrap", why, levels)
        return deltas

    def _pace(self) -> None:
        if time.perf_counter() > self._deadline:
            raise OverBudgetError
