"""The level repair: how a recursive stratum follows a change.

Levels are shortest hyperpath lengths, and are repaired as such:

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

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import join as k
from tidelog.kernel import repair as kernel
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.failures import check_failures
from tidelog.maintain.gather import distinct
from tidelog.maintain.joins import HEAD, Reader, Reading, reading
from tidelog.maintain.rules import RuleJoins
from tidelog.maintain.waiting import Waiting
from tidelog.maintain.walk import Walk
from tidelog.plan.body import AtomUse
from tidelog.store.relation import StoredRelation
from tidelog.store.run import ALIVE, Run, Words, sorted_order
from tidelog.store.versions import Delta, Version

Levels = NDArray[np.int64]


class Repair:
    """One update of a stratum."""

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
        # Where no rule has two atoms of the stratum, nothing but the driver reads the rows of a
        # bucket above level 0. They need no flags, and are written all at once when all is known.
        self._is_linear = all(
            sum(atom.relation in relations for atom in rule_joins.rule.atoms) <= 1
            for rule_joins in joins
        )
        self.buckets = 0
        self.affected = 0

    def run(self) -> None:
        """Repair all levels and counts, and set the deltas."""
        affected = self._lose()
        self.affected = sum(rows.shape[1] for rows in affected.values())
        waiting = {name: Waiting(relation) for name, relation in self._relations.items()}
        self._look_back(affected, waiting)
        self._settle(waiting)
        for name, relation in self._relations.items():
            relation.delta = Delta(_added(relation), _removed(relation, affected[name]))

    # --- 1: lose ---

    def _lose(self) -> dict[str, Words]:
        """Take out what was deleted and all that depends on it; return the rows taken out."""
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
                    self._mark(name, rows, k.FLAG | level)
            runs = {name: _marked(rows, k.FLAG | level) for name, rows in bucket.items()}
            for joins in self._joins:
                head = joins.rule.head.relation
                for driver, run in self._drivers(joins, level, runs, came=False):
                    reader = self._lose_reader(driver, level)
                    for instances in joins.run(driver, k.LOSE, reader, [run]):
                        assert instances.fires is not None
                        for at, lost in self._take_counts(head, instances.rows, instances.fires):
                            buckets.setdefault(at, {}).setdefault(head, []).append(lost)
                        self._pace()
            if flagged:
                for name, rows in bucket.items():
                    self._mark(name, rows, k.DEAD_NOW)
        affected = {
            name: _union(parts) if parts else self._relations[name].no_rows()
            for name, parts in taken.items()
        }
        if self._is_linear:
            for name, rows in affected.items():
                self._mark(name, rows, k.DEAD_NOW)
        return affected

    def _walk_lost(self, buckets: dict[int, dict[str, list[Words]]]) -> tuple[str, Words]:
        """Take out what buckets above level 0 have, and all that depends on it."""
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

    def _take_counts(self, head: str, rows: Words, fires: Levels) -> Iterator[tuple[int, Words]]:
        """Take lost instantiations from the counts of their heads; yield rows that reach 0."""
        relation = self._relations[head]
        relation.touched = True
        primary = relation.primary
        n = rows.shape[1]
        lost = np.empty(n, np.int64)
        log = primary.counts_log
        zeros, log.used = kernel.lose(
            primary.table(), primary.layout.words, rows, fires, n, log.room_for(n), log.used, lost
        )
        assert zeros >= 0, f"negative counts in {head}"
        if zeros:
            rows, levels = rows[:, lost[:zeros]], fires[lost[:zeros]]
            different = sorted(set(levels.tolist()))
            for level in different:
                here = rows if len(different) == 1 else rows[:, levels == level]
                yield level, np.ascontiguousarray(here)

    # --- 2: look back ---

    def _look_back(self, affected: dict[str, Words], waiting: dict[str, Waiting]) -> None:
        """Find the derivations that affected rows have left."""
        for name, rows in affected.items():
            if rows.shape[1] == 0:
                continue
            for joins in self._joins:
                if joins.rule.head.relation != name:
                    continue
                for instances in joins.run(HEAD, k.LOOK_BACK, self._back_reader(), [Run(rows)]):
                    assert instances.fires is not None
                    waiting[name].offer(instances.rows, instances.fires, 0)
                    self._pace()

    def _back_reader(self) -> Reader:
        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> Reading:
            if atom.relation in self._relations:
                return self._own(atom, order, before_driver=False)
            return self._lower(atom, order, Version.EITHER if atom.negated else Version.KEPT)

        return read

    # --- 3: settle ---

    def _settle(self, waiting: dict[str, Waiting]) -> None:
        """Give rows their new levels, from the smallest on."""
        for name in self._relations:
            inserted = self._catalog.given[name].delta.inserted
            if inserted.shape[1]:
                waiting[name].offer(inserted, np.zeros(inserted.shape[1], np.int64), 0)
        for held in waiting.values():
            held.level_above(-1)
        settled: dict[str, list[tuple[Words, Levels, Levels]]] = {
            name: [] for name in self._relations
        }
        level = 0  # the first bucket also brings what lower relations gained
        while level >= 0:
            if level > 0 and self._walks(k.SETTLE):
                name, walked = self._walk_settled(waiting)
                settled[name].append(walked)
                break
            self.buckets += 1
            self._catalog.meter.settles(level)
            flagged = level == 0 or not self._is_linear
            bucket = {}
            for name, held in waiting.items():
                rows, counts = held.take(level)
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
                for driver, run in self._drivers(joins, level, bucket, came=True):
                    for instances in joins.run(
                        driver, k.SETTLE, self._settle_reader(driver, level), [run], level,
                        self._after_reader(),
                    ):  # fmt: skip
                        assert instances.fires is not None
                        waiting[head].offer(instances.rows, instances.fires, level)
                        self._pace()
            if flagged:
                for name, run in bucket.items():
                    self._mark(name, run.words, level)
            above = [held.level_above(level) for held in waiting.values()]
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
        self, waiting: Mapping[str, Waiting]
    ) -> tuple[str, tuple[Words, Levels, Levels]]:
        """Settle what waits above level 0, and what it leads to."""
        (name,) = self._relations

        def check(joins: RuleJoins, driver: int, rows: Words) -> None:
            check_failures(
                self._catalog, joins.rule, driver, self._after_reader(), [Run(_union([rows]))]
            )

        walk = self._walk(k.SETTLE, lambda driver: self._settle_reader(driver, 1))
        parts = walk.settle(waiting[name], self._pace, check)
        self.buckets += walk.levels
        return name, parts

    def _flagged(self, name: str, rows: Words) -> Run:
        """Return rows of a bucket with their marks: flagged, with the old level.

        DEAD_NOW stands for the level of a row that was not there.
        """
        primary = self._relations[name].primary
        marks = np.empty(rows.shape[1], np.int32)
        kernel.old_levels(primary.table(), primary.layout.words, rows, rows.shape[1], marks)
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
        found = relation.find(rows, k.DEAD_NOW)
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

    # --- walking ---

    def _recursive_joins(self) -> list[tuple[RuleJoins, int]]:
        """Return the rules with an atom of the stratum, and the place of that atom."""
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
        self, joins: RuleJoins, level: int, bucket: Mapping[str, Run], *, came: bool
    ) -> Iterator[tuple[int, Run]]:
        """Yield the atoms to join a rule from, and their rows: those of the bucket.

        With the first bucket also what lower relations gained (`came`), or what they lost. What
        came was not there before, so its old level is DEAD_NOW.
        """
        for place, atom in enumerate(joins.rule.atoms):
            if atom.relation in self._relations:
                if atom.relation in bucket:
                    yield place, bucket[atom.relation]
            elif level == 0:
                delta = self._catalog.relations[atom.relation].delta
                rows = delta.inserted if came != atom.negated else delta.deleted
                if rows.shape[1]:
                    yield place, _marked(rows, k.FLAG | k.DEAD_NOW if came else k.FLAG)

    def _own(self, atom: AtomUse, order: tuple[int, ...], *, before_driver: bool) -> Reading:
        index = self._relations[atom.relation].index(order)
        return Reading(
            index.all_runs(), index.table(), ALIVE, uses_level=True, excludes_flagged=before_driver
        )

    def _lower(self, atom: AtomUse, order: tuple[int, ...], version: Version) -> Reading:
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
    return np.ascontiguousarray(
        affected[:, relation.find(affected, k.DEAD - 1).marks == k.DEAD_NOW]
    )
