"""The level repair: how a recursive layer is updated.

Levels are shortest hyperpath lengths, and are repaired as such:

1. *Lose.* Removed rows, by increasing old level, remove the instantiations they are in. A row whose
   count reaches 0 is affected, and is removed in its turn.
2. *Look back.* The instantiations of each affected row among the remaining rows are found once.
3. *Settle.* Rows get their new level, by increasing level, together with the inserted rows; each
   settled row adds the instantiations that it completes.

A row of a lower relation counts as a row at level 0, and the absence of a row under negation as a
row of the complement.

All rows of one level, of all relations, form a *bucket* and are processed at once. They are flagged
meanwhile: an instantiation with several rows in the bucket belongs to the first of them, so atoms
before the driver do not see flagged rows. In Lose a flagged row keeps its old level; in Settle it
has the bucket's level, and its old one tells whether an instantiation was counted before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.join.failures import check_failures
from tidelog.join.gather import distinct
from tidelog.join.joins import HEAD, AtomReading, Reader, reading
from tidelog.join.rules import RuleJoins
from tidelog.kernel import join_layout as k
from tidelog.kernel import repair as kernel
from tidelog.kernel.marks import ALIVE, DEAD, DEAD_NOW, FLAG
from tidelog.maintain.settle_queue import SettleQueue
from tidelog.maintain.strategy import Deltas
from tidelog.maintain.walk import Walk
from tidelog.plan.body import AtomUse, OnFailure
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run, Words
from tidelog.store.sorting import sorted_order
from tidelog.store.versions import Delta, Version

Levels = NDArray[np.int64]


class Repair:
    """One update of a layer."""

    def __init__(
        self,
        catalog: Catalog,
        joins: Sequence[RuleJoins],
        relations: Mapping[str, StoredRelation],
        pace: Callable[[], None],
    ) -> None:
        """Prepare an update. `pace` is called often; it raises to end the update."""
        self._catalog = catalog
        self._joins = joins
        self._relations = relations
        self._pace = pace
        # If no rule has two atoms of the layer, only the driver reads the rows of a bucket above
        # level 0. They need no flags, and are all written at the end.
        self._is_linear = all(
            sum(atom.relation in relations for atom in rule_joins.rule.atoms) <= 1
            for rule_joins in joins
        )
        self.buckets = 0
        self.affected = 0

    def run(self) -> Deltas:
        """Repair all levels and counts; return the deltas."""
        affected = self._lose()
        self.affected = sum(rows.shape[1] for rows in affected.values())
        queues = {name: SettleQueue(relation) for name, relation in self._relations.items()}
        self._look_back(affected, queues)
        self._settle(queues)
        return {
            name: Delta(_added(relation), _removed(relation, affected[name]))
            for name, relation in self._relations.items()
        }

    # --- 1: lose ---

    def _lose(self) -> dict[str, Words]:
        """Remove the deleted rows and all that depends on them; return the removed rows."""
        buckets: dict[int, dict[str, list[Words]]] = {0: {}}
        for name in self._relations:
            deleted = self._catalog.given[name].delta.deleted
            if deleted.shape[1]:
                buckets[0][name] = [deleted]
        taken: dict[str, list[Words]] = {name: [] for name in self._relations}
        while buckets:
            level = min(buckets)
            if level > 0 and self._walks(k.LOSE):
                name, rows = self._walk_lost(buckets)
                taken[name].append(rows)
                break
            self.buckets += 1
            bucket = {name: _union(parts) for name, parts in buckets.pop(level).items()}
            flagged = level == 0 or not self._is_linear
            for name, rows in bucket.items():
                taken[name].append(rows)
                if flagged:
                    self._mark(name, rows, FLAG | level)
            runs = {name: _marked(rows, FLAG | level) for name, rows in bucket.items()}
            for joins in self._joins:
                head = joins.rule.head.relation
                for driver, run in self._drivers(joins, level, runs, inserted=False):
                    reader = self._lose_reader(driver, level)
                    for instances in joins.run(driver, k.LOSE, reader, [run]):
                        assert instances.fires is not None
                        for at, lost in self._take_counts(head, instances.rows, instances.fires):
                            buckets.setdefault(at, {}).setdefault(head, []).append(lost)
                        self._pace()
            if flagged:
                for name, rows in bucket.items():
                    self._mark(name, rows, DEAD_NOW)
        affected = {
            name: _union(parts) if parts else self._relations[name].no_rows()
            for name, parts in taken.items()
        }
        if self._is_linear:
            for name, rows in affected.items():
                self._mark(name, rows, DEAD_NOW)
        return affected

    def _walk_lost(self, buckets: dict[int, dict[str, list[Words]]]) -> tuple[str, Words]:
        """Remove the rows of buckets above level 0, and all that depends on them."""
        (name,) = self._relations
        by_level = sorted((level, _union(bucket[name])) for level, bucket in buckets.items())
        rows = np.concatenate([rows for _, rows in by_level], axis=1)
        levels = np.repeat(
            np.array([level for level, _ in by_level]), [rows.shape[1] for _, rows in by_level]
        )
        walk = self._walk(k.LOSE, lambda driver: self._lose_reader(driver, 1))
        lost = walk.lose(rows, levels, self._pace)
        self.buckets += walk.levels
        return name, lost

    def _lose_reader(self, driver: int, level: int) -> Reader:
        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            if atom.relation in self._relations:
                return self._own(atom, order, before_driver=place < driver)
            # Lower rows are removed in the first bucket: after it, and before the driver in it, the
            # changed rows are gone.
            still_there = level == 0 and place > driver
            if atom.negated:
                version = Version.OLD if still_there else Version.EITHER
            else:
                version = Version.OLD if still_there else Version.KEPT
            return self._lower(atom, order, version)

        return read

    def _take_counts(self, head: str, rows: Words, fires: Levels) -> Iterator[tuple[int, Words]]:
        """Subtract lost instantiations from the counts of their heads; yield rows that reach 0."""
        relation = self._relations[head]
        primary = relation.primary
        n = rows.shape[1]
        lost = np.empty(n, np.int64)
        undo = relation.counts_undo()
        zeros, undo.used = kernel.lose(
            primary.descriptors(),
            primary.layout.words,
            rows,
            fires,
            n,
            undo.room_for(n),
            undo.used,
            lost,
        )
        assert zeros >= 0, f"negative counts in {head}"
        if zeros:
            rows, levels = rows[:, lost[:zeros]], fires[lost[:zeros]]
            different = sorted(set(levels.tolist()))
            for level in different:
                here = rows if len(different) == 1 else rows[:, levels == level]
                yield level, np.ascontiguousarray(here)

    # --- 2: look back ---

    def _look_back(self, affected: dict[str, Words], queues: dict[str, SettleQueue]) -> None:
        """Find the remaining derivations of affected rows."""
        for name, rows in affected.items():
            if rows.shape[1] == 0:
                continue
            for joins in self._joins:
                if joins.rule.head.relation != name:
                    continue
                for instances in joins.run(HEAD, k.LOOK_BACK, self._back_reader(), [Run(rows)]):
                    assert instances.fires is not None
                    queues[name].offer(instances.rows, instances.fires, 0)
                    self._pace()

    def _back_reader(self) -> Reader:
        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            if atom.relation in self._relations:
                return self._own(atom, order, before_driver=False)
            return self._lower(atom, order, Version.EITHER if atom.negated else Version.KEPT)

        return read

    # --- 3: settle ---

    def _settle(self, queues: dict[str, SettleQueue]) -> None:
        """Give rows their new levels, from the smallest on."""
        for name in self._relations:
            inserted = self._catalog.given[name].delta.inserted
            if inserted.shape[1]:
                queues[name].offer(inserted, np.zeros(inserted.shape[1], np.int64), 0)
        for queue in queues.values():
            queue.level_above(-1)
        settled: dict[str, list[tuple[Words, Levels, Levels]]] = {
            name: [] for name in self._relations
        }
        level = 0  # the first bucket also has the inserted rows of lower relations
        while level >= 0:
            if level > 0 and self._walks(k.SETTLE):
                name, walked = self._walk_settled(queues)
                settled[name].append(walked)
                break
            self.buckets += 1
            self._catalog.meter.settles(level)
            flagged = level == 0 or not self._is_linear
            bucket = {}
            for name, queue in queues.items():
                rows, counts = queue.take(level)
                if rows.shape[1]:
                    if len(counts) > 1:
                        order = sorted_order(rows)
                        rows, counts = np.ascontiguousarray(rows[:, order]), counts[order]
                    if flagged:
                        bucket[name] = self._enter(name, rows, counts)
                    else:
                        settled[name].append((rows, np.full(len(counts), level), counts))
                        bucket[name] = self._flagged(name, rows)
            for joins in self._joins:
                head = joins.rule.head.relation
                for driver, run in self._drivers(joins, level, bucket, inserted=True):
                    from_lower = joins.rule.atoms[driver].relation not in self._relations
                    reader = self._settle_reader(driver, level, from_lower=from_lower)
                    for instances in joins.run(
                        driver, k.SETTLE, reader, [run], level, self._after_reader()
                    ):
                        assert instances.fires is not None
                        queues[head].offer(instances.rows, instances.fires, level)
                        self._pace()
            if flagged:
                for name, run in bucket.items():
                    self._mark(name, run.words, level)
            above = [queue.level_above(level) for queue in queues.values()]
            level = min((at for at in above if at >= 0), default=-1)
        for name, parts in settled.items():
            if parts:
                rows = np.concatenate([part[0] for part in parts], axis=1)
                levels = np.concatenate([part[1] for part in parts])
                counts = np.concatenate([part[2] for part in parts])
                order = sorted_order(rows)
                self._write(
                    self._relations[name], np.ascontiguousarray(rows[:, order]),
                    levels[order].astype(np.int32), counts[order],
                )  # fmt: skip

    def _walk_settled(
        self, queues: Mapping[str, SettleQueue]
    ) -> tuple[str, tuple[Words, Levels, Levels]]:
        """Settle the rows that wait above level 0, and those that they lead to."""
        (name,) = self._relations

        def check(joins: RuleJoins, driver: int, rows: Words) -> None:
            if joins.rule.on_failure is OnFailure.RAISE:
                check_failures(
                    self._catalog, joins.rule, driver, self._after_reader(), [Run(_union([rows]))]
                )

        walk = self._walk(k.SETTLE, lambda driver: self._settle_reader(driver, 1))
        parts = walk.settle(queues[name], self._pace, check)
        self.buckets += walk.levels
        return name, parts

    def _flagged(self, name: str, rows: Words) -> Run:
        """Return rows of a bucket with their marks: flagged, with the old level.

        DEAD_NOW stands for the level of a row that was not there.
        """
        primary = self._relations[name].primary
        marks = np.empty(rows.shape[1], np.int32)
        kernel.old_levels(primary.descriptors(), primary.layout.words, rows, rows.shape[1], marks)
        return Run(rows, marks)

    def _enter(self, name: str, rows: Words, counts: Levels) -> Run:
        """Put rows into the bucket: flagged, new ones in the tail; return them and their marks."""
        run = self._flagged(name, rows)
        assert run.marks is not None
        self._write(self._relations[name], rows, run.marks, counts)
        return run

    def _write(
        self, relation: StoredRelation, rows: Words, marks: NDArray[np.int32], counts: Levels
    ) -> None:
        """Write marks and counts of sorted rows; add those that are not there."""
        found = relation.find(rows, DEAD_NOW)
        present = found.present
        if present.all():
            relation.set_counts(found, counts)
            relation.set_marks(rows, marks)
        elif not present.any():
            relation.add(rows, marks, counts)
        else:
            relation.set_counts(found, counts)
            relation.set_marks(np.ascontiguousarray(rows[:, present]), marks[present])
            new = ~present
            relation.add(np.ascontiguousarray(rows[:, new]), marks[new], counts[new])

    def _settle_reader(self, driver: int, level: int, *, from_lower: bool = False) -> Reader:
        """Return what atoms read while rows are settled.

        Inserted rows of lower relations belong to the first bucket. An instantiation with such a
        row is new, whatever its other rows were before. So it is found from the first of these
        rows (`from_lower`), not from a row of the layer whose level decreases.
        """

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            if atom.relation in self._relations:
                return self._own(atom, order, before_driver=place < driver and not from_lower)
            not_yet = level == 0 and (place < driver or not from_lower)
            if atom.negated:
                return self._lower(atom, order, Version.EITHER if not_yet else Version.NEW)
            return self._lower(atom, order, Version.KEPT if not_yet else Version.NEW)

        return read

    def _after_reader(self) -> Reader:
        """Read what is settled so far, and lower relations after the epoch."""

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            if atom.relation in self._relations:
                return self._own(atom, order, before_driver=False)
            return self._lower(atom, order, Version.NEW)

        return read

    # --- walking ---

    def _recursive_joins(self) -> list[tuple[RuleJoins, int]]:
        """Return the rules with an atom of the layer, and the place of that atom."""
        return [
            (joins, place)
            for joins in self._joins
            for place, atom in enumerate(joins.rule.atoms)
            if atom.relation in self._relations
        ]

    def _walks(self, mode: int) -> bool:
        """Return whether the kernel can do a phase by itself, above level 0."""
        return (
            self._is_linear
            and len(self._relations) == 1
            and Walk.is_possible(self._recursive_joins(), mode)
        )

    def _walk(self, mode: int, reader: Callable[[int], Reader]) -> Walk:
        (relation,) = self._relations.values()
        return Walk(self._catalog, relation, self._recursive_joins(), mode, reader)

    # --- reading and marking ---

    def _drivers(
        self, joins: RuleJoins, level: int, bucket: Mapping[str, Run], *, inserted: bool
    ) -> Iterator[tuple[int, Run]]:
        """Yield the atoms to join a rule from, and their rows: those of the bucket.

        With the first bucket also the `inserted` rows of lower relations, or the deleted ones.
        Inserted rows were not there before, so their old level is DEAD_NOW.
        """
        for place, atom in enumerate(joins.rule.atoms):
            if atom.relation in self._relations:
                if atom.relation in bucket:
                    yield place, bucket[atom.relation]
            elif level == 0:
                delta = self._catalog.relations[atom.relation].delta
                rows = delta.inserted if inserted != atom.negated else delta.deleted
                if rows.shape[1]:
                    yield place, _marked(rows, FLAG | DEAD_NOW if inserted else FLAG)

    def _own(self, atom: AtomUse, order: tuple[int, ...], *, before_driver: bool) -> AtomReading:
        index = self._relations[atom.relation].index(order)
        return AtomReading(
            index.all_runs(),
            index.descriptors(),
            ALIVE,
            uses_level=True,
            excludes_flagged=before_driver,
        )

    def _lower(self, atom: AtomUse, order: tuple[int, ...], version: Version) -> AtomReading:
        return reading(self._catalog.relations[atom.relation].index(order), version)

    def _mark(self, name: str, rows: Words, mark: int) -> None:
        self._relations[name].set_marks(rows, np.full(rows.shape[1], mark, np.int32))


def _marked(rows: Words, mark: int) -> Run:
    """Return a run whose rows all have one mark."""
    return Run(rows, np.full(rows.shape[1], mark, np.int32))


def _union(parts: list[Words]) -> Words:
    """Return all rows, sorted."""
    rows = parts[0].copy() if len(parts) == 1 else np.concatenate(parts, axis=1)
    return distinct(rows)[0]


def _added(relation: StoredRelation) -> Words:
    tail = relation.primary.tail
    return relation.no_rows() if tail is None else tail.words


def _removed(relation: StoredRelation, affected: Words) -> Words:
    if affected.shape[1] == 0:
        return affected
    return np.ascontiguousarray(affected[:, relation.find(affected, DEAD - 1).marks == DEAD_NOW])
