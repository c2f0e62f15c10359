"""A stored relation: a set of rows in one or more orders, with two versions during an epoch.

The rows are packed words (store/layout.py). The *primary* order, columns as declared, always exists
and holds the counts; others are built when a plan first asks for them. An epoch writes through
`add`, `set_marks` and `set_counts`; what it overwrites is noted, so that `abort` can put it back,
and `commit` turns the new version into the only one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import descriptors as d
from tidelog.kernel import rows as kernel
from tidelog.kernel.marks import ALIVE, DEAD, DEAD_NOW, KNOWN
from tidelog.store.capture import RelationCapture
from tidelog.store.domain import Domain
from tidelog.store.index import Index, Undo
from tidelog.store.layout import Layout, layout_of
from tidelog.store.run import Counts, Marks, Run, Words, compact_counts
from tidelog.store.sorting import sort_words, sorted_order
from tidelog.store.versions import Attached, Delta, Follower, FoundRows, Version
from tidelog.store.watch import RunWatch

NOWHERE = np.empty((4, 0), np.int64)
"""The places of no rows."""
_DYING = np.full(1, DEAD_NOW, np.int32)
_ONE = np.ones(1, np.int32)


class StoredRelation:
    """Rows of packed codes, in sorted runs."""

    def __init__(self, name: str, domains: Sequence[Domain], *, counted: bool = False) -> None:
        self.name = name
        self.domains = tuple(domains)
        self.counted = counted
        self.watch = RunWatch()
        """Tells short epochs of other changes; relations of one catalog share it."""
        identity = tuple(range(len(domains)))
        self.primary = Index(layout_of(identity, domains), self.watch)
        self._indexes: dict[tuple[int, ...], Index] = {identity: self.primary}
        self._replacement: StoredRelation | None = None
        self.followers: dict[object, Follower] = {}
        """What else is computed from the rows; dropped when they are replaced outside of epochs."""
        self.attached: list[Attached] = []
        """What a strategy stores beside the rows; code that writes to it calls `touch`."""
        self.touched = False
        """Whether the current epoch has written here, or to what is attached."""
        self._cache_layout()
        self.delta: Delta = self._unchanged

    def share_watch(self, watch: RunWatch) -> None:
        """Take part in the watch of a catalog."""
        self.watch = watch
        for index in self._indexes.values():
            index.watch = watch

    # --- layout ---

    @property
    def words(self) -> int:
        """The number of words of a row."""
        return self.primary.layout.words

    def no_rows(self) -> Words:
        """Return an empty set of rows."""
        return self._nothing

    def no_delta(self) -> Delta:
        """Return an empty delta."""
        return self._unchanged

    def pack(self, codes: NDArray[np.int64]) -> Words:
        """Return columns of codes as rows, unsorted."""
        rows = np.empty((self.words, codes.shape[1]), np.int64)
        kernel.pack(codes, codes.shape[1], self.primary.layout.by_column, rows)
        return rows

    def pack_ordinals(self, ordinals: NDArray[np.int64]) -> Words:
        """Return columns of ordinals as rows, unsorted. They fit the domains."""
        n = ordinals.shape[1]
        rows = np.empty((self.words, n), np.int64)
        kernel.pack_ordinals(ordinals, n, self.primary.layout.biased, rows)
        return rows

    def copies(self, other: StoredRelation, columns: Sequence[int]) -> NDArray[np.int64]:
        """Return how rows of another relation become rows of this one, with some of its columns.

        That is for each column (word, shift, mask) there, and (word, shift) here.
        """
        theirs = other.primary.layout.by_column[list(columns)]
        return np.ascontiguousarray(np.hstack([theirs, self.primary.layout.by_column[:, :2]]))

    def unpack(self, rows: Words) -> NDArray[np.int64]:
        """Return rows as columns of codes."""
        codes = np.empty((len(self.domains), rows.shape[1]), np.int64)
        kernel.unpack(rows, rows.shape[1], self.primary.layout.by_column, codes)
        return codes

    def ordinals(self, rows: Words) -> NDArray[np.int64]:
        """Return rows as columns of ordinals."""
        return ordinals_by(rows, self.primary.layout.biased)

    def index(self, order: tuple[int, ...]) -> Index:
        """Return the relation in the given order of columns, built on first use."""
        found = self._indexes.get(order)
        if found is None:
            layout = self.primary.layout
            assert layout.is_current(self.domains), "the layout is out of date"
            self.watch.changed()
            found = Index(Layout(order, self.domains), self.watch)
            for run in self.primary.runs:
                words, marks = run.words, run.marks
                if run.dead and marks is not None:
                    kept = marks != DEAD
                    words, marks = np.ascontiguousarray(words[:, kept]), marks[kept]
                found.runs.append(found.sorted_run(words, layout, marks, None))
            self._copy_undo(found)
            if self.primary.tail is not None:
                tail = self.primary.tail
                found.tail = found.sorted_run(tail.words, layout, tail.marks, None)
            self._indexes[order] = found
        return found

    def _copy_undo(self, copy: Index) -> None:
        """Give a copy in another order the undo entries of the primary one."""
        undo = self.primary.marks_undo
        for number in np.unique(undo.columns[0, : undo.used]).tolist():
            run = self.primary.runs[number]
            assert run.marks is not None
            before = run.marks.copy()
            entries = undo.columns[:, : undo.used]
            entries = entries[:, entries[0] == number]
            before[entries[1, ::-1]] = entries[2, ::-1]  # the oldest value stays
            changed = np.unique(entries[1])
            rows = np.ascontiguousarray(run.words[:, changed])
            old = copy.sorted_run(rows, self.primary.layout, before[changed], None)
            assert old.marks is not None
            n = len(changed)
            own = copy.marks_undo
            own.room_for(n)[:, own.used : own.used + n] = (
                np.full(n, number), copy.runs[number].locate(old.words, DEAD), old.marks,
            )  # fmt: skip
            own.used += n

    def arranged(self, run: Run, order: tuple[int, ...]) -> Run:
        """Return a run of the primary order in another one, without counts."""
        if order == self.primary.layout.order:
            return run
        index = self._indexes.get(order) or Index(Layout(order, self.domains), self.watch)
        return index.sorted_run(run.words, self.primary.layout, run.marks, None)

    @property
    def stored(self) -> int:
        """The number of rows in the runs, dead ones included: a size that costs nothing."""
        tail = self.primary.tail
        rows = 0 if tail is None else tail.size
        for run in self.primary.runs:
            rows += run.size
        return rows

    @property
    def indexes(self) -> dict[tuple[int, ...], Index]:
        """The orders that exist."""
        return self._indexes

    def relayout(self) -> None:
        """Rewrite all rows after a domain has widened. Between epochs only.

        The order of codes is that of ordinals before and after, so runs stay sorted.
        """
        self.watch.changed()
        old = [(index, index.layout) for index in self._indexes.values()]
        for index, layout in old:
            index.layout = Layout(layout.order, self.domains)
            for run in index.runs:
                n = len(run)
                columns = np.empty((len(self.domains), n), np.int64)
                kernel.unpack_ordinals(run.words, n, layout.biased, columns)
                words = np.empty((index.layout.words, n), np.int64)
                kernel.pack_ordinals(columns, n, index.layout.biased, words)
                run.rewrite(words)
            index.merges.clear()  # they would mix the layouts; they start again
            index.forget_descriptors()
        self._cache_layout()
        self.delta = self._unchanged

    def _cache_layout(self) -> None:
        """Compute what depends on the layout alone, and is needed in every epoch."""
        biases = tuple([domain.bias for domain in self.domains])
        self.codes = (biases, tuple([domain.bits for domain in self.domains]))
        """Bias and bits of each column."""
        self.biases = _column(biases)
        self._nothing: Words = np.empty((self.words, 0), np.int64)
        self._unchanged = Delta(self._nothing, self._nothing)

    # --- reading ---

    def __len__(self) -> int:
        return sum(
            len(run) if run.marks is None else int((run.marks <= ALIVE).sum())
            for run in self.primary.all_runs()
        )

    def alive(self, version: Version = Version.NEW) -> Iterator[Run]:
        """Yield runs of the primary order with the rows that `version` shows, and no others."""
        runs = self.primary.all_runs() if version.with_tail else self.primary.runs
        for run in runs:
            if run.marks is None or not (run.marks > version.limit).any():
                yield run
            else:
                keep = run.marks <= version.limit
                yield Run(
                    np.ascontiguousarray(run.words[:, keep]),
                    run.marks[keep],
                    None if run.counts is None else run.counts[keep],
                )

    def rows(self, version: Version = Version.NEW) -> Words:
        """Return all rows of a version, sorted."""
        runs = list(self.alive(version))
        if not runs:
            return self.no_rows()
        if len(runs) == 1:
            return runs[0].words
        return sort_words(np.concatenate([run.words for run in runs], axis=1))

    def find(self, rows: Words, limit: int = ALIVE) -> FoundRows:
        """Return where the rows are, those with marks up to `limit`."""
        columns = np.empty((4, rows.shape[1]), np.int64)
        d.find(self.primary.descriptors(), self.words, limit, rows, rows.shape[1], columns)
        return FoundRows(columns)

    def placed(self, ordinals: NDArray[np.int64]) -> tuple[Words, NDArray[np.int64], int]:
        """Return a row of ordinals as it is stored, its place, and which column does not fit.

        Does what `pack_ordinals` and `find` do for one row, the usual case, in one kernel call.
        """
        primary = self.primary
        layout = primary.layout
        row, place = np.empty((layout.words, 1), np.int64), np.empty((4, 1), np.int64)
        misfit = d.place(ordinals, layout.biased, primary.descriptors(), ALIVE, row, place)
        return row, place, misfit

    def split(self, rows: Words) -> tuple[Words, Words]:
        """Return the rows that are not here, and those that are."""
        n = rows.shape[1]
        if n == 0:
            return rows, rows
        found = self.find(rows)
        if n == 1:
            return (self.no_rows(), rows) if found.columns[0, 0] >= 0 else (rows, self.no_rows())
        present = found.present
        there = int(np.count_nonzero(present))
        if there == len(present):
            return self.no_rows(), rows
        if there == 0:
            return rows, self.no_rows()
        return np.ascontiguousarray(rows[:, ~present]), np.ascontiguousarray(rows[:, present])

    def present(self, rows: Words) -> tuple[Words, NDArray[np.int64], Words]:
        """Return the rows that are here, the places where they are, and the other rows."""
        if rows.shape[1] == 0:
            return rows, NOWHERE, rows
        found = self.find(rows)
        if rows.shape[1] == 1:
            if found.columns[0, 0] >= 0:
                return rows, found.columns, self._nothing
            return self._nothing, NOWHERE, rows
        here = found.present
        there = int(np.count_nonzero(here))
        if there == len(here):
            return rows, found.columns, self.no_rows()
        if there == 0:
            return self.no_rows(), NOWHERE, rows
        columns = np.ascontiguousarray(found.columns[:, here])
        return (
            np.ascontiguousarray(rows[:, here]), columns, np.ascontiguousarray(rows[:, ~here]),
        )  # fmt: skip

    # --- writing, within an epoch ---

    def add(self, rows: Words, marks: Marks | None, counts: Counts | None) -> None:
        """Add sorted rows that no version of the current epoch shows.

        The relation takes over an array of 32-bit counts, and writes to it.
        """
        if rows.shape[1] == 0:
            return
        self.touched = True
        primary = self.primary
        kept = None
        if counts is not None:
            kept = counts if counts.dtype == np.int32 else compact_counts(counts)
        if marks is None and len(self._indexes) == 1:
            primary.add(Run(rows, None, kept))
            return
        layout = primary.layout
        marks = None if marks is None else marks.copy()  # `set_marks` writes to them
        for index in self._indexes.values():
            own = kept if index is primary else None
            index.add(index.sorted_run(rows, layout, marks, own))

    def set_marks(self, rows: Words, marks: Marks) -> None:
        """Change the marks of sorted rows that the current epoch knows, in every order.

        DEAD_NOW is for rows of earlier epochs. A row of this epoch becomes GONE, so that no version
        shows it; it can be revived by its mark like any other row, or added again.
        """
        if rows.shape[1]:
            self.touched = True
            layout = self.primary.layout
            for index in self._indexes.values():
                index.set_marks(rows, marks, layout)

    def remove(self, rows: Words, places: NDArray[np.int64] | None = None) -> None:
        """Delete sorted rows of earlier epochs.

        `places` are where they were found, if nothing was added since.
        """
        n = rows.shape[1]
        if not n:
            return
        self.touched = True
        primary = self.primary
        if places is None and n > 1 and self.words == 1:  # then finding many is faster
            found = self.find(rows, KNOWN)
            places = np.ascontiguousarray(found.columns[:, found.present])
        if places is not None:
            primary.kill(places)
        else:
            primary.set_marks(rows, _dying(n), primary.layout)
        if len(self._indexes) > 1:
            marks = _dying(n)
            for index in self._indexes.values():
                if index is not primary:
                    index.set_marks(rows, marks, primary.layout)

    def change(self, inserted: Words, deleted: Words) -> Delta:
        """Apply a sorted insert set and a sorted delete set; return them as a delta.

        Each row has one derivation.
        """
        if deleted.shape[1]:
            self.remove(deleted)
        n = inserted.shape[1]
        if n:
            ones = None
            if self.counted:
                ones = _ONE.copy() if n == 1 else np.ones(n, np.int32)
            self.add(inserted, None, ones)
        return Delta(inserted, deleted)

    def touch(self) -> None:
        """Note that the epoch writes to what is attached."""
        self.touched = True

    def record(self, delta: Delta) -> None:
        """Set the net change of the epoch, which readers of `delta` see until it ends."""
        self.touched = True
        self.delta = delta

    def forget_delta(self) -> None:
        """Forget what `record` has set, of an epoch that wrote nothing else here."""
        self.touched = False
        self.delta = self._unchanged

    def counts_undo(self) -> Undo:
        """Return the undo entries of the counts, for a kernel that writes counts by itself."""
        self.touched = True
        return self.primary.counts_undo

    def set_counts(self, found: FoundRows, counts: NDArray[np.int64]) -> None:
        """Change the counts of rows that were found."""
        self.touched = True
        self.primary.set_counts(found.columns, counts)

    def replace(self, rows: Words, marks: Marks | None, counts: NDArray[np.int64] | None) -> None:
        """Replace everything by sorted rows: the end of a bootstrap."""
        kept = None if counts is None else compact_counts(counts)
        self.replace_runs([Run(rows, marks, kept)])

    def replace_runs(self, runs: list[Run]) -> None:
        """Replace everything by runs of the primary order."""
        self.watch.changed()
        identity = self.primary.layout.order
        self._indexes = {identity: self.primary}
        self.followers.clear()
        self.primary.runs = [run for run in runs if len(run)]
        self.primary.tail = None
        self.primary.merges.clear()
        self.primary.forget_descriptors()

    def append_run(self, rows: Words, counts: NDArray[np.int64]) -> None:
        """Add sorted rows as a run of every order, outside of epochs: a round of a bootstrap.

        They have no marks yet, so that merging them costs less; see `replace_runs`.
        """
        self.watch.changed()
        for index in self._indexes.values():
            if index is self.primary:
                index.runs.append(Run(rows, None, counts))
            else:
                index.runs.append(Run(sort_words(index.repacked(rows, self.primary.layout))))

    def drop_orders(self, kept: Collection[tuple[int, ...]]) -> None:
        """Drop the orders that are not among `kept`. The primary one stays."""
        self.watch.changed()
        identity = self.primary.layout.order
        self._indexes = {o: i for o, i in self._indexes.items() if o == identity or o in kept}

    def empty_copy(self) -> StoredRelation:
        """Return a relation like this one, without rows."""
        return StoredRelation(self.name, self.domains, counted=self.counted)

    def copied(self, name: str) -> StoredRelation:
        """Return another relation with the same rows, between epochs; it shares their words."""
        copy = StoredRelation(name, self.domains)
        copy.replace_runs([Run(run.words) for run in self.alive()])
        return copy

    def set_counted(self, counted: bool) -> None:
        """Give each row level 0 and the count 1, or no count. Between epochs only.

        The runs are new ones: a snapshot may be written from the old ones.
        """
        self.watch.changed()
        self.counted = counted
        for index in self._indexes.values():
            for number, run in enumerate(index.runs):
                marks = None
                if run.marks is not None:
                    marks = np.where(run.marks <= ALIVE, 0, run.marks).astype(np.int32)
                has_counts = counted and index is self.primary
                counts = np.ones(len(run), np.int32) if has_counts else None
                index.runs[number] = Run(run.words, marks, counts, run.dead)
            index.merges.clear()  # they read the old ones
            index.forget_descriptors()

    def replace_at_commit(self, other: StoredRelation, *, shown: bool = True) -> Delta:
        """Take over the rows of `other` when the epoch commits; return the delta.

        Until then this relation shows the change as in any other epoch: rows that `other` lacks
        are dead, rows that it adds are in the tail. If nobody reads them until then (`shown` is
        false), they are not written.
        """
        assert self._is_idle(), "the epoch has changed rows"
        before, after = self.rows(Version.OLD), other.rows(Version.NEW)
        inserted, deleted = without(after, before), without(before, after)
        if shown:
            self.remove(deleted)
            ones = np.ones(inserted.shape[1], np.int64) if self.counted else None
            self.add(inserted, np.zeros(inserted.shape[1], np.int32), ones)
        self._replacement = other
        self.touched = True
        return Delta(inserted, deleted)

    # --- saving and restoring, between epochs ---

    def capture(self, in_files_from: int | None = None) -> RelationCapture:
        """Return all that is stored as it is now; it stays so while epochs go on, until `release`.

        What is still in files, and has at least `in_files_from` bytes, is captured as these files.
        """
        self.watch.changed()
        return RelationCapture(
            {order: index.capture(in_files_from) for order, index in self._indexes.items()},
            [
                attached.capture(
                    use_files=in_files_from is not None and attached.nbytes >= in_files_from
                )
                for attached in self.attached
            ],
        )

    def release(self) -> None:
        """End the capture: epochs need not note what they overwrite any more."""
        self.watch.changed()
        for index in self._indexes.values():
            index.release()
        for attached in self.attached:
            attached.release()

    def install(
        self, orders: Mapping[tuple[int, ...], list[Run]], sources: Sequence[Any] = ()
    ) -> None:
        """Take over runs, all of them for each order, and what `sources` hold for `attached`.

        The relation has no rows yet.
        """
        self.watch.changed()
        for order in orders:
            self.index(order)
        for order, runs in orders.items():
            self._indexes[order].install(runs)
        for attached, source in zip(self.attached, sources, strict=False):
            attached.keep(source)

    def compact(self) -> None:
        """Merge the runs of each order into one, without dead rows."""
        self.watch.changed()
        for index in self._indexes.values():
            index.compact()

    def runs(self) -> Iterator[Run]:
        """Yield the runs of all orders."""
        for index in self._indexes.values():
            yield from index.runs

    # --- the end of an epoch ---

    def read_for_commit(self) -> None:
        """Read from files what a commit may need, while the epoch can still be undone."""
        if self._replacement is None:
            for index in self._indexes.values():
                index.read_for_commit()

    def commit(self) -> None:
        """Make the new version the only one."""
        if not self.touched:
            return
        self.touched = False
        if self._replacement is not None:
            for index in self._indexes.values():
                if index.captures:  # a snapshot still reads the old runs
                    index.abort()
            self._indexes, self.primary = self._replacement._indexes, self._replacement.primary
            self._replacement = None
            for index in self._indexes.values():
                index.watch = self.watch
        else:
            for index in self._indexes.values():
                index.commit()
        for follower in self.followers.values():
            follower.commit(self)
        for attached in self.attached:
            attached.commit()
        self.delta = self._unchanged

    def abort(self) -> None:
        """Put everything back as it was before the epoch."""
        if not self.touched:
            return
        self.touched = False
        self._replacement = None
        for index in self._indexes.values():
            index.abort()
        for follower in self.followers.values():
            follower.abort()
        for attached in self.attached:
            attached.abort()
        self.delta = self._unchanged

    def _is_idle(self) -> bool:
        """Return whether no epoch has written here since the last commit."""
        return all(i.tail is None and not i.marks_undo.used for i in self._indexes.values())

    @property
    def nbytes(self) -> int:
        """Return the memory of all orders, of what is attached, and of followers."""
        orders = sum(index.nbytes for index in self._indexes.values())
        followers = sum(follower.nbytes for follower in self.followers.values())
        return orders + followers + sum(attached.nbytes for attached in self.attached)

    def check(self) -> None:
        """Assert that every order is sound and all of them hold the same rows and marks."""
        wanted = None
        idle = self._is_idle()
        for index in self._indexes.values():
            name = f"order {index.layout.order}"
            counted = any(run.counts is not None for run in index.all_runs())
            assert not counted or index is self.primary, f"{name} is counted, not the primary only"
            index.check()
            assert index.layout.is_current(self.domains), "the layout is out of date"
            held = self._known(index)
            if wanted is None:
                wanted = held
            assert np.array_equal(held[0], wanted[0]), f"{name} holds other rows"
            assert np.array_equal(held[1], wanted[1]), f"{name} holds other marks"
            same = (held[0][:, 1:] == held[0][:, :-1]).all(axis=0)
            assert not same.any(), f"{name} holds a row twice"
            assert not idle or (held[1] <= ALIVE).all(), f"{name} has marks of an epoch that ended"
        for follower in self.followers.values() if idle else ():
            follower.check(self)

    def _known(self, index: Index) -> tuple[Words, Marks]:
        """Return all rows that are not dead, sorted in the primary order, and their marks."""
        parts, marks = [self.no_rows()], [np.zeros(0, np.int32)]
        for run in index.all_runs():
            held = np.zeros(len(run), np.int32) if run.marks is None else run.marks
            keep = held != DEAD
            words = np.ascontiguousarray(run.words[:, keep])
            parts.append(self.primary.repacked(words, index.layout))
            marks.append(held[keep])
        rows = np.concatenate(parts, axis=1)
        order = sorted_order(rows)
        return rows[:, order], np.concatenate(marks)[order]


def _dying(n: int) -> Marks:
    """Return the marks of n rows that are deleted in this epoch."""
    return _DYING if n == 1 else np.full(n, DEAD_NOW, np.int32)


def _column(numbers: Sequence[int]) -> NDArray[np.int64]:
    """Return one number for each column, to be added to all rows."""
    return np.array(numbers, np.int64).reshape(-1, 1)


def ordinals_by(rows: Words, fields: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return rows as columns of ordinals; `fields` are those of their layout."""
    n = rows.shape[1]
    columns = np.empty((fields.shape[0], n), np.int64)
    kernel.unpack_ordinals(rows, n, fields, columns)
    return columns


def without(rows: Words, others: Words) -> Words:
    """Return the rows that are not among the others; both sorted."""
    kept = rows.copy()
    counts = np.zeros(rows.shape[1], np.int64)
    none = np.zeros(0, np.int32)
    n = kernel.remove_present(kept, counts, rows.shape[1], others, none, False, 0)
    return np.ascontiguousarray(kept[:, :n])
