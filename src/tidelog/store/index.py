"""One order of a relation: its runs, sorted by the columns in that order.

`runs` hold what earlier epochs left, the largest first; `tail` holds the rows that the current
epoch has added. So the version before the epoch is the runs alone, and the version after it the
runs and the tail. Marks tell which of their rows are alive.

At each commit the tail becomes a run, and small runs are merged into larger ones. A large merge
takes many commits, each doing a bounded part of it.

Short epochs write to arrays of their own (store/open_rows.py). What they have done is shown here
when somebody looks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import descriptors as d
from tidelog.kernel import rows as kernel
from tidelog.kernel.marks import ALIVE, DEAD, GONE, KNOWN
from tidelog.runtime.workers import active_workers
from tidelog.store.capture import Capture, SavedCapture
from tidelog.store.layout import Layout
from tidelog.store.lazy_run import LazyRun
from tidelog.store.merging import Merge, merge, nothing_like, without_dead
from tidelog.store.run import NO_COUNTS, Counts, Marks, Run, Words, largest
from tidelog.store.sorting import MANY, sort_marked, sort_words, sorted_order
from tidelog.store.watch import RunWatch

SMALL = 512
_GROWTH = 8  # a run is merged into the next larger one unless it is this many times smaller
MOST_RUNS = d.MOST_RUNS - 1
_NO_DESCRIPTORS = np.empty((0, d.WORDS), np.int64)
_DEAD_SHARE = 4  # a run is rewritten when one row in this many is dead
STEP = 1 << 16  # rows merged at a commit, besides a multiple of the rows that it brings
_STEPS_PER_ROW = 16
_MOST_NARROW = (1 << 31) - 1


class Undo:
    """Marks or counts that an epoch has overwritten (kernel/descriptors.py)."""

    __slots__ = ("columns", "used")

    def __init__(self) -> None:
        self.columns = np.empty((3, 64), np.int64)
        self.used = 0

    def room_for(self, more: int) -> NDArray[np.int64]:
        """Return the columns, with room for `more` entries."""
        needed = self.used + more
        if needed > self.columns.shape[1]:
            larger = np.empty((3, 2 * needed), np.int64)
            larger[:, : self.used] = self.columns[:, : self.used]
            self.columns = larger
        return self.columns

    def clear(self) -> None:
        """Forget all entries; large arrays give their memory back."""
        self.used = 0
        if self.columns.shape[1] > 1 << 12:
            self.columns = np.empty((3, 64), np.int64)


class Index:
    """The rows of a relation in one order."""

    def __init__(self, layout: Layout, watch: RunWatch) -> None:
        """Make an order without rows; `watch` is that of the relation."""
        self.layout = layout
        self.watch = watch
        self._runs: list[Run] = []
        self._open_rows: Run | None = None
        """The last run, if it is a copy of what short epochs have added."""
        self.tail: Run | None = None
        self.marks_undo = Undo()
        self.counts_undo = Undo()
        self.merges: list[Merge] = []
        self.captures: list[Capture] = []
        """The runs that a snapshot is being written from: they are told of changes."""
        self._died = np.zeros(d.MOST_RUNS, np.int64)
        """How many rows of each run died in the epoch that is committed."""
        self._descriptors: NDArray[np.int64] = _NO_DESCRIPTORS
        self._described: list[NDArray[np.int64] | None] = []
        self._current: NDArray[np.int64] | None = None
        """What `descriptors` has returned; None when runs have changed since."""

    # --- rows of other orders ---

    def repacked(self, rows: Words, layout: Layout) -> Words:
        """Return rows of another layout in this one, unsorted."""
        if layout is self.layout:
            return rows
        n = rows.shape[1]
        fields, own = layout.by_column, self.layout.by_column
        into = np.empty((self.layout.words, n), np.int64)
        if n < MANY or rows.shape[0] > 1 or self.layout.words > 1:
            kernel.repack(rows, n, fields, own, into)
            return into

        def repack(start: int, stop: int) -> None:
            kernel.repack(rows[:, start:stop], stop - start, fields, own, into[:, start:stop])

        active_workers().slices(n, repack)
        return into

    def sorted_run(
        self, rows: Words, layout: Layout, marks: Marks | None, counts: Counts | None
    ) -> Run:
        """Return a run of rows that are sorted in another layout."""
        if layout is self.layout:
            return Run(rows, marks, counts)
        own = self.repacked(rows, layout)
        if marks is None and counts is None:
            return Run(sort_words(own))
        if counts is None:
            assert marks is not None
            return Run(*sort_marked(own, marks))
        order = sorted_order(own)
        return Run(
            np.ascontiguousarray(own[:, order]),
            None if marks is None else marks[order],
            counts[order],
        )

    # --- short epochs ---

    @property
    def runs(self) -> list[Run]:
        """The runs that earlier epochs left, the largest first."""
        if self.watch.is_ahead:
            self.watch.catch_up()
        return self._runs

    @runs.setter
    def runs(self, runs: list[Run]) -> None:
        self._runs = runs

    def follow(self, log: NDArray[np.int64], open_rows: Run | None) -> None:
        """Show what short epochs have done: changes of runs, and the rows that they have added.

        `log` has the run and the position of each change, and whether the row died.
        """
        runs = self._runs
        if self._open_rows is not None:
            shown = runs.pop()
            assert shown is self._open_rows, "another run has come after the open one"
        for number in np.unique(log[0]).tolist():
            run, entries = runs[number], log[1:, log[0] == number]
            died = np.unique(entries[0, entries[1] != 0])
            run.dead += len(died)
            for tree in run.trees.values():
                tree.renew(run, died)
            under_way = self._merge_of(run)
            if under_way is not None:
                under_way.note(run, np.unique(entries[0]))
        if open_rows is not None:
            runs.append(open_rows)
        self._open_rows = open_rows
        self._current = None

    @property
    def has_shown_open_rows(self) -> bool:
        """Whether rows of short epochs have become a run, even if their run is gone by now."""
        return self._open_rows is not None

    def keep_open_rows(self) -> None:
        """Keep the rows that short epochs have added as a run like any other."""
        self._open_rows = None

    @property
    def is_crowded(self) -> bool:
        """Whether there are so many runs that two should be merged."""
        return len(self.runs) >= MOST_RUNS - 1

    def tidy(self) -> None:
        """Merge runs, and rewrite those with many dead rows: a bounded amount of work."""
        if not self._is_tidy():
            self._tidy(STEP)
            self._current = None

    # --- reading ---

    def all_runs(self) -> list[Run]:
        """Return the runs, the tail last."""
        return self.runs if self.tail is None else [*self.runs, self.tail]

    def _all_runs(self) -> list[Run]:
        """Return the same where nothing has to be caught up with: within an epoch of strategies."""
        return self._runs if self.tail is None else [*self._runs, self.tail]

    def only_run(self) -> Run | None:
        """Return the run that has all rows of both versions, and no dead ones, if there is one."""
        if self.tail is None and len(self.runs) == 1 and self.runs[0].marks is None:
            return self.runs[0]
        return None

    def descriptors(self) -> NDArray[np.int64]:
        """Return the descriptors of the runs for kernels, the tail last."""
        if self._current is not None and not self.watch.is_ahead:
            return self._current
        if self.watch.is_ahead:
            self.watch.catch_up()
        runs = self._all_runs()
        n, described = len(runs), self._described
        if len(described) < n:
            self._descriptors = np.empty((n + 2, d.WORDS + self.layout.words), np.int64)
            described = self._described = [None] * (n + 2)
        for number, run in enumerate(runs):
            row = run.descriptor if run.descriptor is not None else run.describe()
            if row is not described[number]:  # as a rule only the tail is new
                self._descriptors[number] = described[number] = row
        current = self._current = self._descriptors[:n]
        return current

    def committed_descriptors(self) -> NDArray[np.int64]:
        """Return the descriptors of the runs between epochs; nothing is caught up with for that."""
        if self.watch.is_ahead:
            known = self.watch.descriptors.get(id(self))
            if known is not None:
                return known
        return self.descriptors()

    def old_descriptors(self) -> NDArray[np.int64]:
        """Return the descriptors of the runs without the tail."""
        descriptors = self.descriptors()
        return descriptors if self.tail is None else descriptors[:-1]

    def forget_descriptors(self) -> None:
        """Drop the descriptors: there are other runs, or their arrays have moved."""
        self._current = None
        self._described = []

    @property
    def nbytes(self) -> int:
        """Return the memory of all runs."""
        return sum(run.nbytes for run in self.all_runs())

    # --- writing, within an epoch ---

    def add(self, run: Run) -> None:
        """Add rows to the tail. The index has none of them, except as dead rows."""
        tail, current = self.tail, self._current
        self._current = None
        if tail is None:
            self.tail = run
            if run.size <= SMALL:
                run.need_marks()  # now, since rows of small runs soon die
            number = len(self._runs)
            if current is not None and len(current) == number < len(self._described):
                self._descriptors[number] = self._described[number] = run.describe()
                self._current = self._descriptors[: number + 1]
            return
        if tail.marks is not None:
            at = tail.locate(run.words, KNOWN)
            at = at[at >= 0]
            assert (tail.marks[at] == GONE).all(), "a row is added twice"
            tail.marks[at] = DEAD  # the new ones take their place
        self.tail = merge(tail, run, KNOWN)

    def set_marks(self, rows: Words, marks: Marks, layout: Layout) -> None:
        """Change the marks of rows of another layout."""
        tail = -1 if self.tail is None else len(self._runs)
        done, n = 0, rows.shape[1]
        undo, own = self.marks_undo, self.layout
        columns = undo.room_for(n)
        while done < n:
            undo.used, done, lacks_marks = d.write_marks(
                self.descriptors(), tail, own.words, rows, marks, done, n, layout.by_column,
                own.by_column, columns, undo.used,
            )  # fmt: skip
            if lacks_marks >= 0:
                self._all_runs()[lacks_marks].need_marks()
                self._current = None

    def kill(self, places: NDArray[np.int64]) -> None:
        """Delete rows that were found here, at these runs and positions."""
        n, runs = places.shape[1], self._all_runs()
        numbers = (int(places[0, 0]),) if n == 1 else range(len(runs))
        for number in numbers:
            if runs[number].marks is None and (n == 1 or (places[0] == number).any()):
                runs[number].need_marks()
                self._current = None
        tail = -1 if self.tail is None else len(self._runs)
        undo = self.marks_undo
        undo.used = d.kill(self.descriptors(), tail, places, n, undo.room_for(n), undo.used)

    def set_counts(self, found: NDArray[np.int64], counts: NDArray[np.int64]) -> None:
        """Change the counts of rows that were found here."""
        n = counts.shape[0]
        if largest(counts) > _MOST_NARROW:
            self.widen_counts()
        tail = -1 if self.tail is None else len(self._runs)
        undo = self.counts_undo
        undo.used = d.write_counts(
            self.descriptors(), tail, found, counts, n, undo.room_for(n), undo.used
        )

    def widen_counts(self) -> None:
        """Store counts in 64 bits from now on."""
        self._current = None
        for run in self._all_runs():
            if run.counts is not None and run.counts.dtype == np.int32:
                run.counts = run.counts.astype(np.int64)

    # --- saving and restoring, between epochs ---

    def capture(self, in_files_from: int | None = None) -> list[Capture]:
        """Return the runs as they are now; they stay so while epochs go on, until `release`.

        A run that has not been read from its file yet, and has at least `in_files_from` bytes, is
        captured as that file.
        """
        self.captures = [
            SavedCapture(run)
            if in_files_from is not None
            and isinstance(run, LazyRun)
            and run.nbytes >= in_files_from
            else Capture(run)
            for run in self.runs
        ]
        return self.captures

    def release(self) -> None:
        """End the capture: epochs need not note what they overwrite any more."""
        self.captures = []

    def install(self, runs: list[Run]) -> None:
        """Replace all runs."""
        self.runs = runs
        self.forget_descriptors()

    def compact(self) -> None:
        """Merge all runs into one, without dead rows."""
        self.merges.clear()
        runs = list(self.runs)
        while len(runs) > 1:
            last = runs.pop()
            runs[-1] = merge(runs[-1], last)
        runs = [without_dead(run) if run.dead else run for run in runs]
        self.install([run for run in runs if len(run)])

    # --- the end of an epoch ---

    def abort(self) -> None:
        """Put everything back as it was before the epoch."""
        marks, counts = self.marks_undo, self.counts_undo
        if marks.used:
            d.put_back(self.descriptors(), d.MARKS, marks.columns, marks.used)
        if counts.used:
            d.put_back(self.descriptors(), d.COUNTS, counts.columns, counts.used)
        self.tail = self._current = None
        marks.clear()
        counts.clear()

    def read_for_commit(self) -> None:
        """Read the runs that a commit may merge, if they are still in files.

        Damage is noticed here, where the epoch can be aborted; a commit must not fail.
        """
        before, behind = 0, 0 if self.tail is None else len(self.tail)
        is_full = len(self._runs) >= MOST_RUNS - 2
        for run in reversed(self._runs):
            if isinstance(run, LazyRun):
                n = len(run)
                is_far = n >= SMALL and behind * _GROWTH <= n and run.dead * _DEAD_SHARE < n
                if is_full or not is_far:
                    run.read()
            behind += len(run)
        for run in self._runs:
            n = len(run)
            if isinstance(run, LazyRun) and before and n * _GROWTH > before:
                run.read()
            before = n

    def commit(self) -> None:
        """Make the tail a run like the others, and tidy up: a bounded amount of work."""
        tail, runs = self.tail, self._runs
        brought = self.marks_undo.used + self.counts_undo.used
        if tail is None and not runs:
            return
        self.tail = None  # it has no undo entries
        if brought:
            self._commit_deaths()
            if runs and runs[-1].dead == runs[-1].size and not self.merges:
                runs.pop()  # a row inserted and soon deleted is the usual case
                current = self._current
                is_last = tail is None and current is not None and len(current) == len(runs) + 1
                self._current = current[:-1] if current is not None and is_last else None
        if tail is not None:
            brought += tail.size
            if tail.marks is not None and largest(tail.marks) > ALIVE:
                tail = without_dead(tail)
                self._current = None
            if tail.size:
                runs.append(tail)
            if self._current is not None and len(self._current) != len(runs):
                self._current = None
        if not self._is_tidy():
            self._tidy(STEP + _STEPS_PER_ROW * brought)
            self._current = None

    def _is_tidy(self) -> bool:
        """Return whether no runs have come close in size, and none has many dead rows."""
        if self.merges or len(self._runs) >= MOST_RUNS - 1:
            return False
        before = 0
        for run in self._runs:
            n = run.size
            if not n or (run.dead and _is_worn(run)) or (before >= SMALL and n * _GROWTH > before):
                return False
            before = n
        return True

    def _commit_deaths(self) -> None:
        """Turn the rows deleted in this epoch into tombstones; tell merges and captures."""
        marks, counts = self.marks_undo, self.counts_undo
        if marks.used:
            over = d.commit_deaths(self.descriptors(), marks.columns, marks.used, self._died)
            assert over, "a row is still flagged"
            if marks.used == 1 and not self.merges and not self.captures:
                number = int(marks.columns[0, 0])
                run = self._runs[number]
                run.dead += int(self._died[number])
                if run.trees:
                    self._renew_trees(marks)
                marks.used = 0
                counts.clear()
                return
            has_trees = False
            for run, died in zip(self._runs, self._died.tolist(), strict=False):
                if died:
                    run.dead += died
                has_trees = has_trees or bool(run.trees)
            if has_trees:
                self._renew_trees(marks)
        if self.merges:
            for number, run in enumerate(self._runs):
                under_way = self._merge_of(run)
                for undo in (marks, counts) if under_way is not None else ():
                    positions = undo.columns[1, : undo.used][undo.columns[0, : undo.used] == number]
                    if under_way is not None and len(positions):
                        under_way.note(run, positions)
        if self.captures:
            self._note_captures()
        if marks.used:
            marks.clear()
        if counts.used:
            counts.clear()

    def _renew_trees(self, marks: Undo) -> None:
        """Update the scan trees for the marks that this epoch has changed."""
        for number, run in enumerate(self._runs):
            if run.trees:
                here = marks.columns[0, : marks.used] == number
                positions = np.unique(marks.columns[1, : marks.used][here])
                for tree in run.trees.values():
                    tree.renew(run, positions)

    def _note_captures(self) -> None:
        """Tell a snapshot that is being written what this epoch has overwritten."""
        numbers = {id(run): number for number, run in enumerate(self._runs)}
        for capture in self.captures:
            number = numbers.get(id(capture.run), -1)
            for undo, note in (
                (self.marks_undo, capture.note_marks),
                (self.counts_undo, capture.note_counts),
            ):
                entries = undo.columns[:, : undo.used]
                here = entries[0] == number
                if here.any():
                    note(entries[1, here], entries[2, here])

    def _tidy(self, rows: int) -> None:
        """Merge runs that have come close in size, and rewrite runs with many dead rows.

        Each merge under way advances by `rows`. A merge of n rows takes n / rows commits, which
        bring a sixteenth of n: those are merged with each other meanwhile.
        """
        self._runs = [run for run in self._runs if len(run)]
        for under_way in list(self.merges):
            self._advance(under_way, rows)
        if len(self._runs) >= MOST_RUNS - 1:
            self._current = None  # a merge that has ended has changed the runs
            self._merge_few()
        while self._start_merge(rows):
            pass
        while len(self._runs) >= MOST_RUNS:  # too many: finish, or begin and finish, the smallest
            larger, smaller = self._runs[-2:]
            busy = self._merge_of(smaller) or self._merge_of(larger)
            if busy is None:
                self._runs[-2:] = [merge(larger, smaller)]
            else:
                self._advance(busy, len(busy.a) + len(busy.b))
        dead: list[Run] = []
        for i, run in enumerate(self._runs):
            if run.dead and _is_worn(run) and self._merge_of(run) is None:
                if run.dead == len(run):
                    dead.append(run)
                elif len(run) <= STEP:
                    self._runs[i] = without_dead(run)
                else:
                    self.merges.append(Merge(run, nothing_like(run)))
        # A merge of runs whose rows are all dead is empty.
        self._runs = [run for run in self._runs if len(run) and run not in dead]

    def _merge_few(self) -> None:
        """Merge all small runs at the end at once: that makes room for several."""
        first = len(self._runs)
        rows = 0
        while first and self._merge_of(self._runs[first - 1]) is None:
            rows += len(self._runs[first - 1])
            if rows > SMALL:
                break
            first -= 1
        if len(self._runs) - first > 1:
            self._runs[first:] = [self._merged(first)]

    def _merged(self, first: int) -> Run:
        """Return the rows that are alive in the runs from `first` on."""
        merged = self._runs[first:]
        n = sum(map(len, merged))
        words, marks = np.empty((self.layout.words, n), np.int64), np.empty(n, np.int32)
        counted = merged[0].counts is not None
        wide = any(run.counts is not None and run.counts.dtype == np.int64 for run in merged)
        counts: Counts = NO_COUNTS
        if counted:
            counts = np.empty(n, np.int64) if wide else np.empty(n, np.int32)
        kept, seen = d.merge_few(
            self.descriptors(), first, self.layout.words, ALIVE, words, marks, counts, counted
        )
        return Run(
            words[:, :kept], marks[:kept] if seen else None, counts[:kept] if counted else None
        )

    def _start_merge(self, rows: int) -> bool:
        """Merge two runs of similar size, or begin to; return False if there are none."""
        for i in range(len(self._runs) - 1, 0, -1):
            larger, smaller = self._runs[i - 1 : i + 1]
            if len(larger) < SMALL:
                is_close = len(self._runs) >= MOST_RUNS - 1  # these can wait for each other
            else:
                is_close = len(smaller) * _GROWTH > len(larger)
            if not is_close or self._merge_of(larger) or self._merge_of(smaller):
                continue
            if len(larger) + len(smaller) <= STEP:
                self._runs[i - 1 : i + 1] = [merge(larger, smaller)]
            else:
                self.merges.append(Merge(larger, smaller))
                self._advance(self.merges[-1], rows)
            return True
        return False

    def _merge_of(self, run: Run) -> Merge | None:
        """Return the merge that a run takes part in."""
        return next((m for m in self.merges if run is m.a or run is m.b), None)

    def _advance(self, under_way: Merge, rows: int) -> None:
        merged = under_way.advance(rows)
        if merged is not None:
            self.merges.remove(under_way)
            self._runs[self._runs.index(under_way.a)] = merged
            self._runs = [run for run in self._runs if run is not under_way.b and len(run)]

    def check(self) -> None:
        """Assert that the runs are sound, and their descriptors up to date."""
        for run in self.all_runs():
            run.check()
            assert run.words.shape[0] == self.layout.words, "a run has another layout"
            for tree in run.trees.values() if not self.marks_undo.used else ():
                tree.check(run)
        assert len(self.runs) <= MOST_RUNS, "too many runs"
        for under_way in self.merges:
            assert under_way.a in self.runs, "a run that is merged is not here"
        descriptors = self.descriptors().copy()
        self.forget_descriptors()
        assert np.array_equal(descriptors, self.descriptors()), "descriptors are out of date"


def _is_worn(run: Run) -> bool:
    """Return whether so many rows are dead that the run should be rewritten.

    A small run is merged soon in any case, which drops its dead rows.
    """
    return run.dead == run.size if run.size <= SMALL else run.dead * _DEAD_SHARE >= run.size
