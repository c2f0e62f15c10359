"""Recursive relations: elastic bootstrap and update (ALGORITHMS.md, 2; the paper's section 3).

State per row: its *level*, the first iteration that derives it (0 for given rows), kept as its
mark; and its *count*, the number of rule instantiations that derive it in that very iteration.

`bootstrap` is semi-naive evaluation that counts. `update` repairs levels and counts so that they
end as a bootstrap on the new facts would leave them (the paper's Theorem 3.5), by treating levels
as shortest hyperpath lengths:

1. *Lose.* Rows taken out, by increasing old level, take with them the instantiations they are in. A
   row whose count reaches 0 is affected, and is taken out in its turn.
2. *Look back.* Each affected row asks once for its instantiations among the rows that are left.
3. *Settle.* Rows get their new level, by increasing level, together with what was inserted; each
   settled row brings the instantiations it now completes.

A row of a lower relation counts as a row at level 0, and the absence of a row under negation as a
row of the complement.

All rows of one level, of all relations, form a *bucket* and are processed at once. They are flagged
meanwhile: an instantiation with several rows in the bucket belongs to the first of them, so atoms
before the driver do not see flagged rows. In Lose a flagged row keeps its old level; in Settle it
has the bucket's level, and its old one tells whether an instantiation was accounted before.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import join as k
from tidelog.kernel import rows as kernel
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.gather import Tally, distinct, earliest
from tidelog.maintain.joins import HEAD, Reader, Reading
from tidelog.maintain.rules import RuleJoins
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE, Choice
from tidelog.plan.body import AtomUse
from tidelog.plan.lowered import Layer
from tidelog.store.relation import Delta, StoredRelation, Version
from tidelog.store.run import ALIVE, Run, Words, compact_counts, merge

Levels = NDArray[np.int64]

BUDGET = 0.2  # of the last bootstrap's time, for an update
LEAST_SECONDS = 0.05  # an update always gets this long: plans are made on first use


class OverBudgetError(Exception):
    """The update takes too long; a bootstrap is cheaper."""


@dataclass
class _Pending:
    """Rows that wait to be settled: each with its tentative level and count."""

    rows: Words
    level: Levels
    count: Levels

    def merge(self, rows: Words, level: Levels, count: Levels) -> None:
        """Add candidates; of several for one row those at the smallest level count."""
        rows, level, count = _earliest_sums(
            np.concatenate([self.rows, rows], axis=1),
            np.concatenate([self.level, level]),
            np.concatenate([self.count, count]),
        )
        self.rows, self.level, self.count = rows, level, count

    def levels_of(self, rows: Words) -> Levels:
        """Return the tentative level of each of the sorted rows; DEAD_NOW for those not here."""
        levels = np.full(rows.shape[1], k.DEAD_NOW, np.int64)
        at = Run(self.rows).locate(rows, 0)
        here = at >= 0
        levels[here] = self.level[at[here]]
        return levels

    def take(self, level: int) -> tuple[Words, Levels]:
        """Remove and return the rows at `level`, with their counts."""
        here = self.level == level
        taken = np.ascontiguousarray(self.rows[:, here]), self.count[here]
        self.rows = np.ascontiguousarray(self.rows[:, ~here])
        self.level, self.count = self.level[~here], self.count[~here]
        return taken


class Elastic:
    """Keeps the relations of one recursive stratum."""

    name = "elastic"

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        self._catalog = catalog
        self._names = layer.relations
        self._joins = [RuleJoins(catalog, rule) for rule in layer.rules]
        self._relations = {name: catalog.relations[name] for name in layer.relations}
        self._bootstrap_seconds = 0.0
        self._deadline = float("inf")
        self.choice = NOTHING
        self.budget: float | None = BUDGET

    # --- bootstrap ---

    def bootstrap(self) -> None:
        """Compute the relations from scratch."""
        start = time.perf_counter()
        levels = self._fixpoint(self._relations)
        self._bootstrap_seconds = time.perf_counter() - start
        self.choice = Choice("bootstrap", BOOTSTRAP.why, levels)

    def _fixpoint(self, into: dict[str, StoredRelation]) -> int:
        """Fill `into`, level by level; return the number of levels."""
        fresh: dict[str, bool] = {}
        for name, relation in into.items():
            rows = self._catalog.given[name].rows(Version.NEW)
            ones = np.ones(rows.shape[1], np.int32)
            relation.replace_runs([Run(rows.copy(), np.zeros(rows.shape[1], np.int32), ones)])
            fresh[name] = rows.shape[1] > 0
        level = 0
        while level == 0 or any(fresh.values()):
            level += 1
            found = {name: Tally(relation.words) for name, relation in into.items()}
            for joins in self._joins:
                target = into[joins.rule.head.relation]
                for driver in self._drivers(joins, level, fresh):
                    run = self._fresh_run(joins, driver, into)
                    reader = self._bootstrap_reader(into, driver, fresh)
                    for instances in joins.run(driver, k.PLAIN, reader, run, after=reader):
                        rows, sums = distinct(instances.rows)
                        n = rows.shape[1]
                        for old in target.primary.runs:
                            n = kernel.remove_present(
                                rows, sums, n, old.words, old.need_marks(), False, 0
                            )
                        found[joins.rule.head.relation].merge(
                            np.ascontiguousarray(rows[:, :n]), sums[:n]
                        )
            for name, relation in into.items():
                tally = found[name]
                _merge_older(relation, fresh[name])
                fresh[name] = len(tally) > 0
                if fresh[name]:
                    marks = np.full(len(tally), level, np.int32)
                    relation.append_run(tally.rows, marks, compact_counts(tally.sums))
        return level

    def _drivers(
        self, joins: RuleJoins, level: int, fresh: dict[str, bool]
    ) -> Iterator[int | None]:
        """Yield the atoms to start from: none in the first round, then those with new rows."""
        if level == 1:
            yield None
            return
        for place, atom in joins.rule.positive:
            if fresh.get(atom.relation):
                yield place

    def _fresh_run(
        self, joins: RuleJoins, driver: int | None, into: dict[str, StoredRelation]
    ) -> list[Run] | None:
        if driver is None:
            return None
        newest = into[joins.rule.atoms[driver].relation].primary.runs[-1]
        return [Run(newest.words)]

    def _bootstrap_reader(
        self, into: dict[str, StoredRelation], driver: int | None, fresh: dict[str, bool]
    ) -> Reader:
        """Count an instantiation by its first atom with a newest row: before it, older rows."""

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> Reading:
            relation = into.get(atom.relation)
            if relation is None:
                index = self._catalog.relations[atom.relation].index(order)
                return Reading(index.all_runs(), Version.NEW.limit)
            runs = relation.index(order).runs
            if driver is not None and place < driver and fresh[atom.relation]:
                runs = runs[:-1]
            return Reading(runs, ALIVE, ignores_marks=True)

        return read

    # --- update ---

    def update(self) -> None:
        """Bring the relations up to date; by a bootstrap when the update takes too long."""
        if not any(True for _ in self._changes()):
            self.choice = NOTHING
            return
        if self.budget is not None:
            self._deadline = time.perf_counter() + max(
                LEAST_SECONDS, self.budget * self._bootstrap_seconds
            )
        try:
            self._repair()
            self.choice = UPDATE
        except OverBudgetError:
            for relation in self._relations.values():
                relation.abort()
            levels = self._rebuild()
            self.choice = Choice("bootstrap", "the update went over its budget", levels)
        finally:
            self._deadline = float("inf")

    def read(self, relation: str, version: Version) -> Words:
        """Return the rows of one of the relations, sorted."""
        return self._catalog.relations[relation].rows(version)

    def check(self) -> None:
        """Assert that every row has a count, and given rows are at level 0."""
        for name, relation in self._relations.items():
            for run in relation.alive(Version.NEW):
                assert run.counts is not None, f"{name} has no counts"
                assert (run.counts > 0).all(), f"{name} has rows that nothing derives"
            given = self._catalog.given[name].rows(Version.NEW)
            found = relation.find(given)
            assert found.present.all(), f"{name} lacks given rows"
            assert not relation.marks_at(found).any(), f"{name} has given rows above level 0"

    def memory(self) -> Mapping[str, float]:
        """Return what is to be remembered: how long a bootstrap takes."""
        return {"bootstrap_seconds": self._bootstrap_seconds}

    def remember(self, memory: Mapping[str, float]) -> None:
        """Take back what `memory` returned."""
        self._bootstrap_seconds = memory["bootstrap_seconds"]

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

    def _rebuild(self) -> int:
        """Bootstrap beside the old state; the old one shows the change to the layers above."""
        start = time.perf_counter()
        into = {name: relation.empty_copy() for name, relation in self._relations.items()}
        levels = self._fixpoint(into)
        for name, relation in self._relations.items():
            relation.replace_at_commit(into[name])
        self._bootstrap_seconds = time.perf_counter() - start
        return levels

    def _check_time(self) -> None:
        if time.perf_counter() > self._deadline:
            raise OverBudgetError

    def _repair(self) -> None:
        affected = self._lose()
        pending = self._look_back(affected)
        self._settle(pending)
        for name, relation in self._relations.items():
            relation.delta = Delta(self._added(relation), self._removed(relation, affected[name]))

    def _added(self, relation: StoredRelation) -> Words:
        tail = relation.primary.tail
        return relation.no_rows() if tail is None else tail.words

    def _removed(self, relation: StoredRelation, affected: Words) -> Words:
        if affected.shape[1] == 0:
            return affected
        marks = relation.marks_at(relation.find(affected, k.DEAD - 1))
        return np.ascontiguousarray(affected[:, marks == k.DEAD_NOW])

    # --- 1: lose ---

    def _lose(self) -> dict[str, Words]:
        """Take out what was deleted and all that depends on it; return the rows taken out."""
        buckets: dict[int, dict[str, list[Words]]] = {}
        for name in self._names:
            deleted = self._catalog.given[name].delta.deleted
            if deleted.shape[1]:
                buckets.setdefault(0, {}).setdefault(name, []).append(deleted)
        taken: dict[str, list[Words]] = {name: [] for name in self._names}
        level = 0
        buckets.setdefault(0, {})
        while buckets:
            level = min(buckets)
            bucket = {name: _union(parts) for name, parts in buckets.pop(level).items()}
            for name, rows in bucket.items():
                self._mark(name, rows, k.FLAG | level)
                taken[name].append(rows)
            for joins in self._joins:
                for driver, rows in self._lose_drivers(joins, level, bucket):
                    run = Run(rows, np.full(rows.shape[1], k.FLAG | level, np.int32))
                    reader = self._lose_reader(driver, level)
                    head = joins.rule.head.relation
                    for instances in joins.run(driver, k.LOSE, reader, [run]):
                        self._check_time()
                        assert instances.fires is not None
                        for lost_level, lost in self._lose_counts(
                            head, instances.rows, instances.fires
                        ):
                            buckets.setdefault(lost_level, {}).setdefault(head, []).append(lost)
            for name, rows in bucket.items():
                self._mark(name, rows, k.DEAD_NOW)
        return {
            name: _union(parts) if parts else self._relations[name].no_rows()
            for name, parts in taken.items()
        }

    def _lose_drivers(
        self, joins: RuleJoins, level: int, bucket: dict[str, Words]
    ) -> Iterator[tuple[int, Words]]:
        for place, atom in enumerate(joins.rule.atoms):
            if atom.relation in self._relations:
                if atom.relation in bucket:
                    yield place, bucket[atom.relation]
            elif level == 0:
                delta = self._catalog.relations[atom.relation].delta
                rows = delta.inserted if atom.negated else delta.deleted
                if rows.shape[1]:
                    yield place, rows

    def _lose_reader(self, driver: int, level: int) -> Reader:
        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> Reading:
            if atom.relation in self._relations:
                return self._own(atom, order, before_driver=place < driver)
            # Lower rows are taken out in the first bucket: after it, and before the driver in it,
            # those that the epoch changes are not there any more.
            still_there = level == 0 and place > driver
            if atom.negated:
                version = Version.OLD if still_there else Version.EITHER
            else:
                version = Version.OLD if still_there else Version.KEPT
            return self._lower(atom, order, version)

        return read

    def _lose_counts(self, head: str, rows: Words, fires: Levels) -> Iterator[tuple[int, Words]]:
        """Take lost instantiations from the counts of their heads; yield rows that reach 0."""
        relation = self._relations[head]
        stacked = np.ascontiguousarray(np.vstack([rows, fires[None, :]]))
        stacked, sums = distinct(stacked)
        rows, fires = np.ascontiguousarray(stacked[:-1]), stacked[-1]
        found = relation.find(rows)
        marks = relation.marks_at(found)
        # Only what fired at the head's own level was counted.
        counted = found.present & (marks == fires)
        if not counted.any():
            return
        rows, sums, levels = np.ascontiguousarray(rows[:, counted]), sums[counted], marks[counted]
        found = relation.find(rows)
        counts = relation.counts_at(found) - sums
        assert (counts >= 0).all(), f"negative counts in {head}"
        relation.set_counts(found, counts)
        for level in np.unique(levels[counts == 0]):
            yield int(level), np.ascontiguousarray(rows[:, (counts == 0) & (levels == level)])

    # --- 2: look back ---

    def _look_back(self, affected: dict[str, Words]) -> dict[str, _Pending]:
        """Find the derivations that affected rows have left."""
        pending = {}
        for name, rows in affected.items():
            none = np.empty(0, np.int64)
            pending[name] = _Pending(self._relations[name].no_rows(), none, none)
            if rows.shape[1] == 0:
                continue
            for joins in self._joins:
                if joins.rule.head.relation != name:
                    continue
                for instances in joins.run(HEAD, k.LOOK_BACK, self._back_reader(), [Run(rows)]):
                    self._check_time()
                    assert instances.fires is not None
                    pending[name].merge(*earliest(instances.rows, instances.fires))
        return pending

    def _back_reader(self) -> Reader:
        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> Reading:
            if atom.relation in self._relations:
                return self._own(atom, order, before_driver=False)
            return self._lower(atom, order, Version.EITHER if atom.negated else Version.KEPT)

        return read

    # --- 3: settle ---

    def _settle(self, pending: dict[str, _Pending]) -> None:
        """Give rows their new levels, from the smallest on."""
        for name in self._names:
            inserted = self._catalog.given[name].delta.inserted
            n = inserted.shape[1]
            if n:
                pending[name].merge(inserted, np.zeros(n, np.int64), np.ones(n, np.int64))
        level = 0  # the first bucket also brings what lower relations gained
        while True:
            bucket = {}
            for name, waiting in pending.items():
                rows, counts = waiting.take(level)
                if rows.shape[1]:
                    bucket[name] = Run(rows, self._enter(name, rows, counts))
            for joins in self._joins:
                for driver, run in self._settle_drivers(joins, level, bucket):
                    reader = self._settle_reader(driver, level)
                    head = joins.rule.head.relation
                    for instances in joins.run(
                        driver, k.SETTLE, reader, [run], level, self._after_reader()
                    ):
                        self._check_time()
                        assert instances.fires is not None
                        self._offer(
                            head, *earliest(instances.rows, instances.fires), pending[head], level
                        )
            for name, run in bucket.items():
                self._mark(name, run.words, level)
            waiting_levels = [p.level.min() for p in pending.values() if len(p.level)]
            if not waiting_levels:
                return
            level = int(min(waiting_levels))

    def _enter(self, name: str, rows: Words, counts: Levels) -> NDArray[np.int32]:
        """Put rows into the bucket: flag them, new ones in the tail; return their flagged marks."""
        relation = self._relations[name]
        found = relation.find(rows, k.DEAD_NOW)
        present = found.present
        marks = np.full(rows.shape[1], k.FLAG | k.DEAD_NOW, np.int32)
        marks[present] = k.FLAG | relation.marks_at(found)[present]
        relation.set_counts(found, counts)
        old = np.ascontiguousarray(rows[:, present])
        relation.set_marks(old, marks[present])
        new = np.ascontiguousarray(rows[:, ~present])
        relation.add(new, marks[~present], counts[~present])
        return marks

    def _settle_drivers(
        self, joins: RuleJoins, level: int, bucket: dict[str, Run]
    ) -> Iterator[tuple[int, Run]]:
        for place, atom in enumerate(joins.rule.atoms):
            if atom.relation in self._relations:
                if atom.relation in bucket:
                    yield place, bucket[atom.relation]
            elif level == 0:
                delta = self._catalog.relations[atom.relation].delta
                rows = delta.deleted if atom.negated else delta.inserted
                if rows.shape[1]:
                    yield place, Run(rows, np.full(rows.shape[1], k.FLAG | k.DEAD_NOW, np.int32))

    def _settle_reader(self, driver: int, level: int) -> Reader:
        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> Reading:
            if atom.relation in self._relations:
                return self._own(atom, order, before_driver=place < driver)
            # What lower relations gained enters with the first bucket.
            not_yet = level == 0 and place < driver
            if atom.negated:
                return self._lower(atom, order, Version.EITHER if not_yet else Version.NEW)
            return self._lower(atom, order, Version.KEPT if not_yet else Version.NEW)

        return read

    def _after_reader(self) -> Reader:
        """Read what is settled so far, and lower relations after the epoch."""

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> Reading:
            if atom.relation in self._relations:
                return self._own(atom, order, before_driver=False)
            return self._lower(atom, order, Version.NEW)

        return read

    def _offer(
        self, head: str, rows: Words, fires: Levels, counts: Levels, pending: _Pending, level: int
    ) -> None:
        """Let instantiations reach their heads: a smaller level wins, an equal one adds up."""
        if rows.shape[1] == 0:
            return
        relation = self._relations[head]
        found = relation.find(rows, k.DEAD - 1)
        marks = relation.marks_at(found).astype(np.int64)
        held = np.where(found.present, marks, k.DEAD_NOW)
        held = np.where(held >= k.FLAG, level, held)  # in the bucket: settled at its level
        waiting = pending.levels_of(rows)
        current = np.minimum(held, waiting)
        better = fires < current
        equal_waiting = (fires == current) & (waiting == current)
        equal_held = (fires == current) & (held == current) & (waiting != current)
        join = better | equal_waiting
        if equal_held.any():
            same = np.ascontiguousarray(rows[:, equal_held])
            at = relation.find(same)
            relation.set_counts(at, relation.counts_at(at) + counts[equal_held])
        if join.any():
            pending.merge(np.ascontiguousarray(rows[:, join]), fires[join], counts[join])

    # --- reading and marking ---

    def _own(self, atom: AtomUse, order: tuple[int, ...], *, before_driver: bool) -> Reading:
        runs = self._relations[atom.relation].index(order).all_runs()
        return Reading(runs, ALIVE, uses_level=True, excludes_flagged=before_driver)

    def _lower(self, atom: AtomUse, order: tuple[int, ...], version: Version) -> Reading:
        index = self._catalog.relations[atom.relation].index(order)
        return Reading(index.all_runs() if version.with_tail else index.runs, version.limit)

    def _mark(self, name: str, rows: Words, mark: int) -> None:
        self._relations[name].set_marks(rows, np.full(rows.shape[1], mark, np.int32))


def _union(parts: list[Words]) -> Words:
    if len(parts) == 1:
        return parts[0]
    return distinct(np.concatenate(parts, axis=1))[0]


def _earliest_sums(rows: Words, level: Levels, count: Levels) -> tuple[Words, Levels, Levels]:
    """Return each row once, its smallest level, and the sum of its counts at that level."""
    n = rows.shape[1]
    if n == 0:
        return rows, level, count
    from tidelog.store.run import sorted_order

    stacked = np.ascontiguousarray(np.vstack([rows, level[None, :]]))
    order = sorted_order(stacked)
    stacked, weights = np.ascontiguousarray(stacked[:, order]), count[order]
    sums = np.empty(n, np.int64)
    kept = kernel.unique_sums(stacked, n, weights, True, sums)
    stacked, sums = stacked[:, :kept], sums[:kept]
    first = np.ones(kept, np.bool_)
    if kept > 1:
        first[1:] = (stacked[:-1, 1:] != stacked[:-1, :-1]).any(axis=0)
    return np.ascontiguousarray(stacked[:-1, first]), stacked[-1, first].copy(), sums[first].copy()


def _merge_older(relation: StoredRelation, has_fresh: bool) -> None:
    """Merge the runs of earlier rounds so that few are left: two, and the one just found."""
    for index in relation.indexes.values():
        runs = index.runs
        while len(runs) > 2 or (len(runs) == 2 and len(runs[1]) * 4 > len(runs[0])):
            last = runs.pop()
            runs[-1] = merge(runs[-1], last)
