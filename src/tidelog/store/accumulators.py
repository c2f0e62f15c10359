"""What the groups of an aggregate add up to: the number of their rows, and their exact sum.

Sums are as wide as they need to be, so nothing overflows or is rounded on the way, and a deleted
row leaves no trace. Groups are keyed by ordinals, which do not depend on layouts. A change costs
its own size, however large the groups are.

`add` belongs to an epoch, which `commit` or `abort` ends (kernel/accumulate.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import accumulate as k
from tidelog.kernel import epoch_layout as e
from tidelog.kernel import exact
from tidelog.kernel import groups as g
from tidelog.store.capture import SavedSums, SumsCapture

Array = NDArray[np.int64]
Flags = NDArray[np.bool_]

_FEW = 64
_SPARE = 8  # a file has spare room for one group in this many
_WORDS = 2 * k.LARGEST_BLOCK
_PART = 1 << k.PART_SHIFT
_MANY = 4096  # this many rows have their keys looked up in an array, not in the hash table
_NO_PLACES = np.zeros(0, np.int32)
_NO_ORDER = np.zeros(0, np.int64)
_NO_PARTIALS = np.zeros((3, 0), np.int64)


@dataclass(frozen=True)
class Operation:
    """What is computed from the sum of a group, as the kernel reads it."""

    numbers: Array

    @classmethod
    def count(cls) -> Operation:
        """Return the count of rows."""
        return cls._of(k.COUNT_ROWS)

    @classmethod
    def whole_sum(cls, *, unsigned: bool = False, most: int = 0) -> Operation:
        """Return a sum of whole numbers, below `most` in size; 0 stands for 64 bits."""
        return cls._of(k.WHOLE_SUM, bias=unsigned, most=most)

    @classmethod
    def float_sum(
        cls, *, of_floats: bool, mean: bool, unsigned: bool = False, scale: int = 1
    ) -> Operation:
        """Return a sum or a mean that is a float; whole numbers are divided by `scale`."""
        return cls._of(k.FLOAT_RESULT, of_floats, unsigned, mean, scale)

    @property
    def is_count(self) -> bool:
        """Whether this is the count of rows."""
        return bool(self.numbers[k.OPERATION] == k.COUNT_ROWS)

    @property
    def may_overflow(self) -> bool:
        """Whether a result can overflow its type."""
        return bool(self.numbers[k.OPERATION] == k.WHOLE_SUM)

    @classmethod
    def _of(
        cls, what: int, is_float: bool = False, bias: bool = False, mean: bool = False,
        scale: int = 1, most: int = 0,
    ) -> Operation:  # fmt: skip
        numbers = np.zeros(k.OPERATION_SIZE, np.int64)
        numbers[k.OPERATION], numbers[k.IS_FLOAT], numbers[k.IS_MEAN] = what, is_float, mean
        # The ordinal of an unsigned number is 2**63 below it.
        numbers[k.HIGH_BIAS], numbers[k.SCALE], numbers[k.MOST] = bias << 31, scale, most
        return cls(numbers)


@dataclass(frozen=True)
class Sum:
    """A group's number of rows, its exact sum, and how many infinities and NaN there are."""

    support: int
    exact: Fraction
    special: tuple[int, int, int]


class SumsSource(Protocol):
    """Groups that are in files."""

    @property
    def saved(self) -> Any:
        """What a later snapshot can refer to instead of writing them again."""

    @property
    def nbytes(self) -> int:
        """The size of the arrays."""

    def read(self) -> tuple[Array, NDArray[np.int32], int]:
        """Return heads, words, and how many of these are used; raise StateError for damage.

        The caller owns the arrays.
        """


class Accumulators:
    """Groups with their sums."""

    def __init__(self, key: int, operation: Operation) -> None:
        self._key = key
        """How many columns the key of a group has."""
        self._operation = operation.numbers
        self._limbs = _limbs_for(1)
        self._no_values = np.zeros(1, np.int64)
        self._captured: SumsCapture | None = None
        self.clear()

    def clear(self) -> None:
        """Forget all groups."""
        self._source: SumsSource | None = None
        self._heads = np.zeros((_FEW, self._key + g.FIELDS), np.int64)
        self._table = np.zeros(2 * _FEW, np.int32)
        self._words = np.zeros(_WORDS, np.uint32)
        self._undo = np.zeros((_FEW, g.UNDO_SIZE), np.int64)
        self._state = np.zeros(g.STATE, np.int64)

    def __len__(self) -> int:
        self._need()
        return int(self._state[g.LIVE])

    # --- files ---

    def capture(self, *, use_files: bool) -> SumsCapture:
        """Return the groups as they are now; later epochs note there what they overwrite."""
        if self._source is not None and use_files:
            self._captured = SavedSums(self._source.saved)
        else:
            self._need()
            used, words = self._state[[g.USED, g.WORDS_USED]].tolist()
            # The spare room behind lets the arrays be used when they are read back.
            self._captured = SumsCapture(
                self._heads[: used + used // _SPARE], self._words[: words + words // _SPARE], words
            )
        return self._captured

    def release(self) -> None:
        """Stop noting changes."""
        self._captured = None

    def keep(self, source: SumsSource) -> None:
        """Take the groups from files when they are first needed."""
        self.clear()
        self._source = source

    @property
    def is_kept(self) -> bool:
        """Whether the groups are in files, and have not been read yet."""
        return self._source is not None

    def _need(self) -> None:
        """Read the groups, if they are in files."""
        if self._source is None:
            return
        flat, limbs, used = self._source.read()
        if not len(flat):  # the arrays must have room for a group: -1 is looked up, too
            self.clear()
            return
        heads, words = flat.reshape(-1, self._key + g.FIELDS), limbs.view(np.uint32)
        state = np.zeros(g.STATE, np.int64)
        state[g.USED], state[g.WORDS_USED] = len(heads), used
        table = np.zeros(1 << (2 * len(heads) + _FEW).bit_length(), np.int32)
        k.adopt(heads, words, state, table, np.zeros(used >> k.UNIT_SHIFT, np.uint8))
        self._heads, self._words, self._table, self._state = heads, words, table, state
        self._source = None

    # --- within an epoch ---

    def describe(self, row: Array) -> bool:
        """Write where the arrays are, for short epochs (kernel/epoch_layout.py).

        Returns False if they are in files, or if a snapshot has to know of changes.
        """
        if self._source is not None or self._captured is not None:
            return False
        row[e.HEADS] = self._heads.ctypes.data
        row[e.HEAD_COUNT], row[e.HEAD_WIDTH] = self._heads.shape
        row[e.TABLE], row[e.TABLE_SIZE] = self._table.ctypes.data, len(self._table)
        row[e.BLOCKS], row[e.BLOCKS_SIZE] = self._words.ctypes.data, len(self._words)
        row[e.STATE] = self._state.ctypes.data
        row[e.SUMS_UNDO], row[e.SUMS_UNDO_COUNT] = self._undo.ctypes.data, len(self._undo)
        row[e.OPERATION] = self._operation.ctypes.data
        return True

    def add(
        self,
        columns: Array,
        key: Array,
        target: int | None,
        added: int,
        partials: Array = _NO_PARTIALS,
    ) -> tuple[Array, Array]:
        """Add the first `added` of the rows to their groups, and subtract the others.

        If there are `partials`, each row stands for many: for a count of rows, and for their sum in
        two halves (kernel/scan.py).

        Returns the result rows to delete and those to insert: columns of ordinals, the key and the
        value. A group without rows has none, nor has one whose sum overflows its type.
        """
        if self._source is not None:
            self._need()
        state, n = self._state, columns.shape[1]
        assert not state[g.TOUCHED], "the epoch before has not ended"
        assert n <= exact.MOST_ADDED, "so many rows must be added in parts"
        which = np.empty(n, np.int64)
        seen, lowest = (_NO_PLACES, 0) if n < _MANY else _places(columns, key)
        done = 0
        while True:
            done = g.note_groups(
                self._heads, self._table, state, columns, key, done, n, which, self._undo,
                seen, lowest,
            )  # fmt: skip
            if done == n:
                break
            self._make_room(n - done)
        groups = int(state[g.TOUCHED])
        deleted = np.empty((self._key + 1, groups), np.int64)
        inserted = np.empty((self._key + 1, groups), np.int64)
        state[g.DELETED : g.BEYOND + 1] = 0
        values = self._no_values if target is None else columns[target]
        limbs = self._limbs if groups == 1 else _limbs_for(groups)
        for first, start, stop, order in _parts(which, groups):
            self._make_words(len(limbs))
            k.add_up(
                self._heads, self._words, state, self._undo, self._operation, which, values,
                partials, added, order, start, stop, first, limbs, deleted, inserted,
            )  # fmt: skip
        old, new, _ = state[g.DELETED : g.BEYOND + 1].tolist()
        return deleted[:, :old], inserted[:, :new]

    def _make_words(self, groups: int) -> None:
        """Make room for the sums of this many groups, however large they become."""
        needed = int(self._state[g.WORDS_USED]) + groups * k.LARGEST_BLOCK
        if needed > len(self._words):
            self._words = _longer(self._words, max(needed, 2 * len(self._words)))

    def _make_room(self, rows: int) -> None:
        """Enlarge the arrays that have no room for another group."""
        state = self._state
        if state[g.USED] == len(self._heads) and not state[g.FREE_HEAD]:
            self._heads = _longer(self._heads, 2 * len(self._heads) + _FEW)
        if state[g.TOUCHED] == len(self._undo):
            self._undo = _longer(self._undo, min(8 * len(self._undo), len(self._undo) + rows))
        if 2 * (len(self) + 1) > len(self._table):
            self._table = np.zeros(4 * len(self._table), np.int32)
            g.enter_all(self._heads, int(state[g.USED]), self._table)

    @property
    def some_overflow(self) -> bool:
        """Whether the sum of a group of this epoch overflows its type."""
        return bool(self._state[g.BEYOND])

    def overflows(self) -> tuple[Flags, Flags]:
        """Return for each group of this epoch whether its sum did overflow, and whether it does.

        They are in the order of the undo entries.
        """
        _, _, undo = self.touched()
        fields = self._heads[undo[:, g.UNDO_SLOT], self._key :]
        had = (undo[:, g.UNDO_SUPPORT] > 0) & (undo[:, g.UNDO_SHAPE] & k.VALID == 0)
        has = (fields[:, g.SUPPORT] > 0) & (fields[:, g.SHAPE] & k.VALID == 0)
        return had, has

    def failed(self) -> tuple[Array, Array]:
        """Return the keys of groups whose sums no longer overflow, and of those that begin to.

        Only groups of this epoch, as columns.
        """
        had, has = self.overflows()
        keys = self._heads[self._undo[: len(had), g.UNDO_SLOT], : self._key].T
        return keys[:, had & ~has], keys[:, has & ~had]

    def touched_overflowing(self) -> Array:
        """Return the keys of the groups of this epoch whose sums overflow."""
        _, has = self.overflows()
        return self._heads[self._undo[: len(has), g.UNDO_SLOT], : self._key].T[:, has]

    def touched(self) -> tuple[Array, NDArray[np.uint32], Array]:
        """Return heads and words, and the undo entries of the groups of this epoch."""
        return self._heads, self._words, self._undo[: self._state[g.TOUCHED]]

    def support(self, columns: Array, key: Array) -> Array:
        """Return how many rows each of the groups has."""
        slots = self._slots(columns, key)
        return np.where(slots >= 0, self._heads[slots, self._key + g.SUPPORT], 0)

    def _slots(self, columns: Array, key: Array) -> Array:
        self._need()
        slots = np.empty(columns.shape[1], np.int64)
        g.find_groups(self._heads, self._table, columns, key, len(slots), slots)
        return slots

    # --- the end of an epoch ---

    def commit(self) -> None:
        """Keep what the epoch has added."""
        self._finish(aborts=False)

    def abort(self) -> None:
        """Put all groups back as they were before the epoch."""
        self._finish(aborts=True)

    def _finish(self, aborts: bool) -> None:
        touched = self._state[g.TOUCHED]
        if touched:
            if self._captured is not None and not aborts:
                self._captured.note(self._heads, self._words, self._undo[:touched])
            k.finish(self._heads, self._table, self._words, self._state, self._undo, aborts)
            if len(self._undo) > 1 << 12:
                self._undo = np.zeros((_FEW, g.UNDO_SIZE), np.int64)

    # --- for debugging and tests ---

    @property
    def nbytes(self) -> int:
        """Return the memory of all arrays."""
        if self._source is not None:
            return self._source.nbytes
        return sum(a.nbytes for a in (self._heads, self._table, self._words, self._undo))

    def contents(self) -> dict[tuple[int, ...], Sum]:
        """Return the sums of all groups, by their keys."""
        self._need()
        unit = Fraction(2) ** exact.UNIT_EXPONENT if self._operation[k.IS_FLOAT] else Fraction(1)
        found = {}
        for head in self._heads[: self._state[g.USED]].tolist():
            fields = head[self._key :]
            if fields[g.SUPPORT] < 0:
                continue
            shape = fields[g.SHAPE]
            low, count = shape & k.BYTE, (shape >> k.COUNT_SHIFT) & k.BYTE
            block = fields[g.BLOCK]
            words = self._words[block : block + count + 6].tolist()
            size = sum(word << (32 * (low + i)) for i, word in enumerate(words[:count]))
            special = words[count : count + 6] if shape & k.SPECIAL else [0] * 6
            a, b, c = (special[i] | special[i + 1] << 32 for i in (0, 2, 4))
            whole = -size if shape & k.NEGATIVE else size
            found[tuple(head[: self._key])] = Sum(fields[g.SUPPORT], whole * unit, (a, b, c))
        return found

    def check(self) -> None:
        """Assert that heads, hash table and blocks fit each other. Between epochs only."""
        self._need()
        state = self._state
        assert not state[g.TOUCHED], "an epoch is open"
        assert not self._limbs.any(), "limbs are left over"
        used, width = int(state[g.USED]), self._key
        heads = self._heads[:used]
        live = np.flatnonzero(heads[:, width + g.SUPPORT] > 0)
        assert len(live) == len(self), "groups are not counted"
        assert (heads[live, width + g.NUMBER] == g.NO_NUMBER).all(), "a group is still numbered"
        entered = np.sort(self._table[self._table != 0]) - 1
        assert np.array_equal(entered, live), "the hash table has other groups"
        key = np.arange(width)
        columns = np.ascontiguousarray(heads[live, :width].T).reshape(width, len(live))
        assert np.array_equal(self._slots(columns, key), live), "a group cannot be found"
        free, at = set(), int(state[g.FREE_HEAD])
        while at:
            assert at - 1 not in free, "the free groups form a circle"
            free.add(at - 1)
            at = int(heads[at - 1, width + g.VALUE])
        assert free == set(range(used)) - set(live.tolist()), "groups are lost"
        self._check_blocks(heads[live, width:])

    def _check_blocks(self, fields: Array) -> None:
        owner = np.zeros(int(self._state[g.WORDS_USED]), np.int64)

        def claim(block: int, block_size: int) -> None:
            size = k.LARGEST_BLOCK if block_size == g.BLOCK_SIZES else 2 << block_size
            assert block + size <= len(owner), "a block is beyond the words"
            owner[block : block + size] += 1

        for head in fields.tolist():
            shape = head[g.SHAPE]
            if shape >> k.SIZE_SHIFT:
                claim(head[g.BLOCK], shape >> k.SIZE_SHIFT)
                count = (shape >> k.COUNT_SHIFT) & k.BYTE
                limbs = self._words[head[g.BLOCK] : head[g.BLOCK] + count]
                assert not count or (limbs[0] and limbs[-1]), "a sum is not settled"
        for block_size in range(1, g.BLOCK_SIZES + 1):
            at = int(self._state[g.FREE_BLOCK + block_size])
            while at:
                claim(at - 1, block_size)
                assert owner[at - 1] == 1, "a free block is in use"
                at = int(self._words[at - 1])
        assert (owner == 1).all(), "words are lost, or in two blocks"


def _places(columns: Array, key: Array) -> tuple[NDArray[np.int32], int]:
    """Return a place for each value of a key of one column, and the lowest value.

    Returns no places if the key has several columns, or its values are far apart.
    """
    if len(key) == 1:
        column = columns[key[0]]
        lowest, highest = int(column.min()), int(column.max())
        if highest - lowest < columns.shape[1]:
            return np.zeros(highest - lowest + 1, np.int32), lowest
    return _NO_PLACES, 0


def _parts(which: Array, groups: int) -> Iterable[tuple[int, int, int, Array]]:
    """Return the groups in parts: the first group, where its rows start and stop, their order."""
    n = len(which)
    if groups <= _PART:
        return ((0, 0, n, _NO_ORDER),)
    parts = (groups + _PART - 1) // _PART
    starts, order = np.empty(parts + 1, np.int64), np.empty(n, np.int64)
    k.order_by_part(which, n, parts, starts, order)
    bounds = starts.tolist()
    return [(p * _PART, bounds[p], bounds[p + 1], order) for p in range(parts)]


def _limbs_for(groups: int) -> Array:
    return np.zeros((min(groups, _PART), k.ROW), np.int64)


def _longer(array: NDArray[Any], size: int) -> NDArray[Any]:
    """Return a copy with room for this many entries."""
    longer = np.zeros((size, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    return longer
