"""A compiled join: its arrays (kernel/join_layout.py), and how it is run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import join as kernel
from tidelog.kernel import join_layout as k
from tidelog.plan.steps import Absent, Bound, Leap, Plan, Scan, Seek
from tidelog.store.layout import Layout
from tidelog.store.run import Run, address
from tidelog.values.types import Type

Array = NDArray[np.int64]

FUEL = 20_000_000  # steps of the interpreter until it returns, so that the epoch can be stopped


class Overflowed(Exception):
    """A computed value does not fit the domain of its column."""

    def __init__(self, slot: str, code: int) -> None:
        super().__init__(slot, code)
        self.slot, self.code = slot, code


class JoinProgram:
    """One compiled join."""

    def __init__(
        self,
        plan: Plan,
        mode: int,
        layouts: Sequence[Layout],
        arrays: Mapping[str, Array],
        initial: Array,
        record_slots: Sequence[tuple[int, Type, int]],
        emitted: tuple[str, ...],
        out_height: int,
        slot_numbers: Mapping[str, int],
    ) -> None:
        """Take what the compiler made (join/compiler.py).

        `initial` are the values that slots start with, `record_slots` those that hold addresses of
        the fields of records, `emitted` the slots that the join writes to the head.
        """
        self.plan = plan
        self.mode = mode
        self.arrays, self.initial = arrays, initial
        self.slot_numbers = slot_numbers
        self.emitted = emitted
        self.out_height = out_height
        self._layouts = layouts
        self._record_slots = record_slots
        self._arrays = tuple(arrays[name] for name in k.ARRAYS)
        self._atoms, self._runs, self._high = arrays["atoms"], arrays["runs"], arrays["high"]
        self._slots, self._cursor = arrays["slots"], arrays["cursor"]
        self._rest, self._flagged = arrays["rest"], arrays["flagged"]
        self._state = np.zeros(k.STATE_SIZE, np.int64)
        self._kept: dict[int, Sequence[Run]] = {}

    def read(
        self,
        atom: int,
        descriptors: Array,
        kept: Sequence[Run],
        limit: int,
        uses_level: bool = False,
        excludes_flagged: bool = False,
        ignores_marks: bool = False,
    ) -> bool:
        """Set the runs that an atom reads (kernel/descriptors.py); return False if there are none.

        `kept` holds the runs: the kernel only has their addresses.
        """
        if descriptors.shape[0] == 0:
            self._atoms[atom, k.RUN_COUNT] = 0
            return False
        self._kept[atom] = kept
        kernel.read_runs(
            self._runs, self._high, self._atoms, atom, descriptors, limit, uses_level,
            excludes_flagged, ignores_marks,
        )  # fmt: skip
        return True

    @property
    def reads_records(self) -> bool:
        """Whether `refresh` has anything to do."""
        return bool(self._record_slots)

    def refresh(self, address: Callable[[Type, int], int]) -> None:
        """Fill in the addresses of the fields of records: the arrays grow, and move."""
        for slot, type_, field in self._record_slots:
            self.initial[slot] = address(type_, field)

    def begin(self, settle_level: int = 0) -> None:
        """Put the join at its beginning."""
        kernel.begin(
            self._state, self._slots, self.initial, self._cursor, self._rest, self._flagged,
            settle_level,
        )  # fmt: skip

    def scans_at_once(self, atom: int) -> bool:
        """Return whether one scan binds all columns of an atom: any order of rows will do."""
        uses = [
            step
            for step in self.plan.steps
            if (isinstance(step, Scan | Seek | Bound | Absent) and step.atom == atom)
            or (isinstance(step, Leap) and atom in step.atoms)
        ]
        return (
            len(uses) == 1
            and isinstance(uses[0], Scan)
            and len(uses[0].columns) == len(self.plan.atoms[atom].args)
        )

    def layout(self, atom: int) -> Layout:
        """Return the layout of the rows of an atom, in the order in which they are read."""
        return self._layouts[atom]

    def description(self, driver: int) -> Array:
        """Return the join as a row of numbers, for a walk (kernel/walk.py)."""
        layout = self._layouts[driver]
        row = [driver, layout.words, address(layout.by_column), kernel.address_of_join()]
        for array in (*self._arrays, self._state, self.initial):
            shape = (*array.shape, 0, 0)[:3]
            row += [address(array), *shape]
        return np.array(row, np.int64)

    def advance(self, out: Array) -> tuple[int, bool]:
        """Run on; return how many columns of `out` are filled, and whether that was all.

        Returns early when `out` is full, and when the fuel is used up.
        """
        state = self._state
        state[k.FUEL] = FUEL
        run: Callable[..., int] = kernel.join
        status = run(*self._arrays, out, state, self.mode)
        if status == k.WIDEN:
            raise self.overflowed()
        if status == k.OUT_OF_FUEL:
            return 0, False
        filled = int(state[k.FILLED])
        state[k.FILLED] = 0
        return filled, status == k.DONE

    def overflowed(self) -> Overflowed:
        """Return the value that did not fit, after the kernel has returned WIDEN."""
        state = self._state
        return Overflowed(self.emitted[state[k.WIDEN_COLUMN]], int(state[k.WIDEN_VALUE]))

    def parts(self, count: int) -> list[JoinProgram]:
        """Return copies of the join that each do a part of it, in the order of its output.

        What the first step goes through is cut into parts with about as many rows: values of a
        leap, or rows of a scan. Returns nothing if the first step does neither. The parts are valid
        until the join reads other rows.
        """
        steps, high = self.arrays["steps"], self._high
        step = steps[0]
        if step[k.OP] == k.LEAP:
            read = self.arrays["parts"][step[k.LEAP_START] : step[k.LEAP_STOP], :2].tolist()
        elif step[k.OP] in (k.SCAN, k.SCAN_EMIT):
            read = [(int(step[k.SCAN_ATOM]), int(step[k.SCAN_DEPTH]))]
        else:
            return []
        sizes = {
            atom: high[atom, 0, : self._atoms[atom, k.RUN_COUNT]].tolist()
            for atom, depth in read
            if depth == 0
        }
        if not sizes:
            return []
        atom = max(sizes, key=lambda atom: sum(sizes[atom]))
        cuts = self._values(atom, sizes[atom], count) if step[k.OP] == k.LEAP else None
        cuts = cuts or _row_cuts(sizes[atom], count)
        found = []
        for start, stop in itertools.pairwise(cuts):
            if start != stop:
                part = self.copy()
                part.arrays["low"][atom, 0, : len(start)] = start
                part.arrays["high"][atom, 0, : len(stop)] = stop
                found.append(part)
        return found

    def _values(self, atom: int, sizes: Sequence[int], count: int) -> list[list[int]]:
        """Return positions in the runs of an atom at values of its first column."""
        field = self.arrays["fields"][atom, 0]
        word, shift = int(field[k.FIELD_WORD]), int(field[k.FIELD_SHIFT])
        runs = [run.words[word] for run in self._kept[atom][: len(sizes)]]
        largest = max(runs, key=len)
        cuts = [[0] * len(runs)]
        for number in range(1, count):
            key = (largest[len(largest) * number // count] >> shift) << shift
            cuts.append([int(np.searchsorted(words, key)) for words in runs])
        return [*cuts, list(sizes)]

    def copy(self) -> JoinProgram:
        """Return the join, opened as it is, with arrays of its own for what it reads and does."""
        changing = ("atoms", "runs", "slots", "low", "high", "cursor", "rest", "flagged")
        own = {name: self.arrays[name].copy() for name in changing}
        copied = JoinProgram(
            self.plan, self.mode, self._layouts, {**self.arrays, **own}, self.initial,
            self._record_slots, self.emitted, self.out_height, self.slot_numbers,
        )  # fmt: skip
        copied._kept = dict(self._kept)
        return copied

    def release(self) -> None:
        """Drop the references to the runs that were read."""
        self._kept.clear()

    def run(self, out: Array, settle_level: int = 0) -> Iterator[int]:
        """Run the join; yield how many columns of `out` are filled, chunk by chunk."""
        self.begin(settle_level)
        try:
            done = False
            while not done:
                filled, done = self.advance(out)
                yield filled
        finally:
            self.release()

    @property
    def failed(self) -> bool:
        """Whether some computation failed since `run` was called."""
        return bool(self._state[k.FAILURE])


def _row_cuts(sizes: Sequence[int], count: int) -> list[list[int]]:
    """Return positions in runs that are read one after the other."""
    total = sum(sizes)
    cuts = []
    for number in range(count + 1):
        left, cut = total * number // count, []
        for size in sizes:
            cut.append(min(left, size))
            left -= cut[-1]
        cuts.append(cut)
    return cuts
