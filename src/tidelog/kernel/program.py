"""A plan becomes the arrays that the join interpreter reads.

Compiled once for a plan and the layouts of its relations; running it only fills in the addresses
of the runs to read (`JoinProgram.read`) and calls the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import join as k
from tidelog.kernel import setup
from tidelog.kernel import table as t
from tidelog.kernel.join import join
from tidelog.kernel.machine import Op
from tidelog.logic.program import Comparison
from tidelog.plan.body import Apply, Assign, Check, Count, Unpack
from tidelog.plan.steps import Absent, Compute, Iterate, Leap, Plan, Scan, Seek, Step
from tidelog.values.types import Kind, Type

BATCH = "%rows"
"""The relation of the rows that an earlier stage of a join has emitted: any value fits there."""
FUEL = 20_000_000
CHUNK = 1 << 22

Array = NDArray[np.int64]


class LayoutLike(Protocol):
    """What is needed of a layout (store/layout.py)."""

    words: int
    by_column: Array
    by_level: Array


class DomainLike(Protocol):
    """What is needed of a domain (store/domain.py)."""

    bias: int

    @property
    def mask(self) -> int:
        """The bits a code may have."""


@dataclass(frozen=True)
class Output:
    """Where the values of an instantiation go: slot, word, shift and mask of each."""

    words: int
    places: tuple[tuple[str, int, int, int], ...]


class Overflowed(Exception):
    """A computed value does not fit the domain of its column: (place of the output, code)."""

    def __init__(self, place: int, code: int) -> None:
        super().__init__(place, code)
        self.place, self.code = place, code


_COMPARE = {
    Comparison.EQ: (Op.EQ, False),
    Comparison.NE: (Op.NE, False),
    Comparison.LT: (Op.LT, False),
    Comparison.LE: (Op.LE, False),
    Comparison.GT: (Op.LT, True),
    Comparison.GE: (Op.LE, True),
}


class JoinProgram:
    """One compiled join."""

    def __init__(
        self,
        plan: Plan,
        layouts: Sequence[LayoutLike],
        domains: Mapping[str, DomainLike],
        types: Mapping[str, Type],
        constants: Mapping[str, int],
        output: Output,
        mode: int = k.PLAIN,
    ) -> None:
        self.plan = plan
        self.mode = mode
        self._domains = domains
        self._types = types
        self._slots: dict[str, int] = {}
        self._values: list[int] = []
        self._table_slots: list[tuple[int, Type, int]] = []
        self._constants = constants
        self._code: list[tuple[int, int, int, int]] = []
        self._cols: list[tuple[int, int, int, int]] = []
        self._parts: list[tuple[int, int]] = []
        self._segments: list[tuple[int, int, int, int]] = []
        self._steps: list[list[int]] = []
        self._layouts = layouts
        self._levels = [0] * len(plan.atoms)
        self._from_atoms = {
            slot
            for atom in plan.atoms
            if not atom.negated and atom.relation != BATCH
            for slot in atom.slots
        }
        for slot, value in constants.items():
            self._values[self._slot(slot)] = value
        for step in plan.steps:
            self._add_step(step)
        self._pieces: list[tuple[int, int, int, int]] = []
        self._emits: list[tuple[int, int, int, int]] = []
        self._finish(output)
        self._freeze(output)

    # --- slots ---

    def _slot(self, name: str) -> int:
        number = self._slots.get(name)
        if number is None:
            number = self._slots[name] = len(self._values)
            self._values.append(0)
        return number

    def _fresh(self) -> int:
        self._values.append(0)
        return len(self._values) - 1

    def _number(self, value: int) -> int:
        """Return a slot that holds a number known now."""
        slot = self._fresh()
        self._values[slot] = value
        return slot

    def _ordinal(self, name: str) -> int:
        """Return a slot with the ordinal of a value, which is kept as a code."""
        slot = self._slot(name)
        domain = self._domains.get(name)
        if domain is None or domain.bias == 0:
            return slot
        into = self._fresh()
        self._code.append((Op.ADD_CONST, into, slot, domain.bias))
        return into

    # --- steps ---

    def _add_step(self, step: Step) -> None:
        match step:
            case Leap(slot, atoms, _):
                start = len(self._parts)
                for atom in atoms:
                    self._parts.append((atom, self._levels[atom]))
                    self._levels[atom] += 1
                self._emit_step(k.LEAP, self._slot(slot), start, len(self._parts))
            case Seek(atom, columns):
                for level, level_to, start, stop in self._word_segments(atom, columns):
                    self._emit_step(k.SEEK, atom, level, level_to, start, stop)
            case Absent(atom):
                begin = len(self._segments)
                columns = self.plan.orders[atom]
                self._segments.extend(self._word_segments(atom, columns))
                self._emit_step(k.ABSENT, atom, begin, len(self._segments))
            case Scan(atom, columns):
                start = len(self._cols)
                for column in columns:
                    name = self.plan.atoms[atom].args[column]
                    if name is not None:
                        word, shift, mask = self._layouts[atom].by_column[column]
                        self._cols.append((word, shift, mask, self._slot(name)))
                self._emit_step(
                    k.SCAN, atom, self._levels[atom], start, len(self._cols), self._fresh()
                )
                self._levels[atom] += len(columns)
            case Iterate(count):
                self._iterate(count)
            case Compute(what, binds):
                self._compute(what, binds)

    def _emit_step(self, *fields: int) -> None:
        self._steps.append([*fields, *([0] * (8 - len(fields)))])

    def _word_segments(
        self, atom: int, columns: Sequence[int]
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield (level, level after, start, stop) for the columns, split where a word ends."""
        layout = self._layouts[atom]
        i = 0
        while i < len(columns):
            start, level = len(self._cols), self._levels[atom]
            word = layout.by_column[columns[i], 0]
            while i < len(columns) and layout.by_column[columns[i], 0] == word:
                slot = self.plan.atoms[atom].args[columns[i]]
                assert slot is not None
                _, shift, mask = layout.by_column[columns[i]]
                self._cols.append((word, shift, mask, self._slot(slot)))
                self._levels[atom] += 1
                i += 1
            yield level, self._levels[atom], start, len(self._cols)

    def _iterate(self, count: Count) -> None:
        begin = len(self._code)
        start, stop = self._ordinal(count.start), self._ordinal(count.stop)
        if count.type.kind is Kind.UNSIGNED:
            raise AssertionError("ranges of unsigned numbers are computed outside")
        if count.step is None:
            # +1 or -1, whichever leads from start to stop: 2 * (start <= stop) - 1
            step, one, two = self._fresh(), self._number(-1), self._number(2)
            self._code.append((Op.LE, step, start, stop))
            self._code.append((Op.MUL, step, step, two))
            self._code.append((Op.ADD, step, step, one))
        else:
            step = self._ordinal(count.step)
        self._emit_step(k.CALC, begin, len(self._code))
        raw = self._fresh()
        self._emit_step(k.RANGE, raw, start, stop, step, self._fresh())
        self._store(raw, count.into)

    def _store(self, ordinal: int, name: str) -> None:
        """Add a step that keeps an ordinal as the code of slot `name`."""
        domain = self._domains.get(name)
        bias = domain.bias if domain is not None else 0
        begin = len(self._code)
        self._code.append((Op.ADD_CONST, self._slot(name), ordinal, -bias))
        self._emit_step(k.CALC, begin, len(self._code))

    def _compute(self, what: Assign | Check | Unpack, binds: bool) -> None:
        begin = len(self._code)
        match what:
            case Check(op, left, right):
                opcode, swapped = _COMPARE[op]
                # Codes of one domain compare as their values do, unless one was computed: it may
                # be outside of what the domain covers.
                same = self._domains.get(left) is self._domains.get(right)
                if same and {left, right} <= self._from_atoms:
                    a, b = self._slot(left), self._slot(right)
                else:
                    a, b = self._ordinal(left), self._ordinal(right)
                self._test(begin, opcode, *((b, a) if swapped else (a, b)))
            case Unpack(record, into, type_):
                self._unpack(record, into, type_)
            case Assign(into, value):
                result = self._ordinal(value) if isinstance(value, str) else self._apply(value)
                if binds:
                    domain = self._domains.get(into)
                    bias = domain.bias if domain is not None else 0
                    self._code.append((Op.ADD_CONST, self._slot(into), result, -bias))
                    self._emit_step(k.CALC, begin, len(self._code))
                else:
                    self._test(begin, Op.EQ, result, self._ordinal(into))

    def _test(self, begin: int, opcode: int, a: int, b: int) -> None:
        into = self._fresh()
        self._code.append((opcode, into, a, b))
        self._emit_step(k.TEST, begin, len(self._code), into)

    def _unpack(self, record: str, into: tuple[str, ...], type_: Type) -> None:
        begin = len(self._code)
        number = self._ordinal(record)
        self._test(begin, Op.NE, number, self._number(0))
        begin = len(self._code)
        for field, name in enumerate(into):
            value, table = self._fresh(), self._fresh()
            self._table_slots.append((table, type_, field))
            self._code.append((Op.LOOK_UP, value, number, table))
            domain = self._domains.get(name)
            bias = domain.bias if domain is not None else 0
            self._code.append((Op.ADD_CONST, self._slot(name), value, -bias))
        self._emit_step(k.CALC, begin, len(self._code))

    def _apply(self, value: Apply) -> int:
        """Add the code of a functor; return the slot of its ordinal."""
        args = [self._ordinal(arg) for arg in value.args]
        return Functors(self._code, self._fresh, self._number).add(value, args)

    # --- output ---

    def _finish(self, output: Output) -> None:
        """Add the last step: EMIT, or SCAN_EMIT in the place of a last SCAN."""
        last = self.plan.steps[-1] if self.plan.steps else None
        if (
            self.mode == k.PLAIN
            and output.words == 1
            and isinstance(last, Scan)
            and self._fits(output)
        ):
            layout = self._layouts[last.atom]
            scanned = {self.plan.atoms[last.atom].args[column]: column for column in last.columns}
            pieces = []
            for name, _, into, mask in output.places:
                if name in scanned:
                    word, shift, width = layout.by_column[scanned[name]]
                    pieces.append((int(word), int(shift), int(width), into))
                else:
                    self._emits.append((self._slot(name), 0, into, mask))
            self._pieces = _joined_pieces(pieces) or [(0, 0, 0, 0)]
            step = self._steps[-1]
            self._steps[-1] = [k.SCAN_EMIT, step[1], step[2], 0, 0, 0, 0, 0]
            return
        self._emits = [
            (self._slot(name), word, shift, mask) for name, word, shift, mask in output.places
        ]
        self._emit_step(k.EMIT)

    def _fits(self, output: Output) -> bool:
        """Return whether no value of the head can be too large for its column."""
        from_atoms = self._from_atoms
        for name, _, _, mask in output.places:
            known = self._constants.get(name)
            if known is not None:
                if known & ~mask:
                    return False
            elif name not in from_atoms:
                return False
        return True

    def _freeze(self, output: Output) -> None:
        atoms, levels = len(self.plan.atoms), 1
        for layout in self._layouts:
            levels = max(levels, len(layout.by_level))
        self.steps = _table(self._steps, 8)
        self.parts = _table(self._parts, 2)
        self.cols = _table(self._cols, 4)
        self.segments = _table(self._segments, 4)
        self.code = _table(self._code, 4)
        self.emits = _table(self._emits, 4)
        self.pieces = _table(self._pieces or [(0, 0, 0, 0)], 4)
        self.fields = np.zeros((max(atoms, 1), levels, 5), np.int64)
        for i, layout in enumerate(self._layouts):
            self.fields[i, : len(layout.by_level)] = layout.by_level
        words = max([layout.words for layout in self._layouts], default=1)
        self.atoms = np.zeros((max(atoms, 1), 4), np.int64)
        self.runs = np.zeros((max(atoms, 1), t.MOST_RUNS, t.WORDS + words), np.int64)
        shape = (max(atoms, 1), levels + 1, t.MOST_RUNS)
        self.low, self.high = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.cursor = np.zeros(shape, np.int64)
        self._initial = np.array(self._values or [0], np.int64)
        self.slots = self._initial.copy()
        self.rest = np.zeros(len(self._steps) + 1, np.int64)
        self.flagged = np.zeros(len(self._steps) + 1, np.int64)
        self.state = np.zeros(k.STATE_SIZE, np.int64)
        self._kept: dict[int, object] = {}
        self.out_height = output.words + {k.PLAIN: 0, k.RAW: 2}.get(self.mode, 1)

    # --- running ---

    def read(
        self,
        atom: int,
        table: Array,
        kept: object,
        limit: int,
        uses_level: bool = False,
        excludes_flagged: bool = False,
        ignores_marks: bool = False,
    ) -> bool:
        """Say which runs an atom reads (kernel/table.py); return False when there are none.

        `kept` are the runs themselves: the kernel only has their addresses.
        """
        count = table.shape[0]
        if count == 0:
            self.atoms[atom, k.RUN_COUNT] = 0
            return False
        self._kept[atom] = kept
        setup.read_runs(
            self.runs, self.high, self.atoms, atom, table, limit, uses_level, excludes_flagged,
            ignores_marks,
        )  # fmt: skip
        return True

    def refresh(self, address: Callable[[Type, int], int]) -> None:
        """Fill in where the fields of records are now: their tables grow, and move."""
        for slot, type_, field in self._table_slots:
            self._initial[slot] = address(type_, field)

    def begin(self, settle_level: int = 0) -> None:
        """Make ready to run the join from its beginning."""
        setup.begin(
            self.state, self.slots, self._initial, self.cursor, self.rest, self.flagged,
            settle_level,
        )  # fmt: skip

    def arrays(self) -> tuple[Array, ...]:
        """Return the arrays of the join, those that it reads and those that it works with."""
        return (
            self.steps, self.parts, self.cols, self.segments, self.fields, self.atoms,
            self.runs, self.code, self.emits, self.pieces, self.slots, self.low, self.high,
            self.cursor, self.rest, self.flagged,
        )  # fmt: skip

    def scans_at_once(self, atom: int) -> bool:
        """Return whether all columns of an atom are bound by one scan: any order of rows will do.

        Nor must the interpreter jump over rows of it that it need not see.
        """
        uses = [
            step
            for step in self.plan.steps
            if (isinstance(step, Scan | Seek | Absent) and step.atom == atom)
            or (isinstance(step, Leap) and atom in step.atoms)
        ]
        return (
            len(uses) == 1
            and isinstance(uses[0], Scan)
            and len(uses[0].columns) == len(self.plan.atoms[atom].args)
        )

    def description(self, driver: int) -> Array:
        """Return the join as a row of the table of joins that are walked (kernel/walk.py)."""
        layout = self._layouts[driver]
        row = [driver, layout.words, layout.by_column.ctypes.data]
        for array in (*self.arrays(), self.state, self._initial):
            shape = (*array.shape, 0, 0)[:3]
            row += [array.ctypes.data, *shape]
        return np.array(row, np.int64)

    def advance(self, out: Array) -> tuple[int, bool]:
        """Run on; return how many columns of `out` are filled, and whether that was all.

        It comes back early when `out` is full, and every now and then to give a chance to stop.
        """
        state = self.state
        state[k.FUEL] = FUEL
        run: Callable[..., int] = join
        status = run(*self.arrays(), out, state, self.mode)
        if status == k.WIDEN:
            raise self.overflowed()
        if status == k.OUT_OF_FUEL:
            return 0, False
        filled = int(state[k.FILLED])
        state[k.FILLED] = 0
        return filled, status == k.DONE

    def overflowed(self) -> Overflowed:
        """Return which value did not fit, after the kernel has said that one did not."""
        return Overflowed(int(self.state[k.WIDEN_COLUMN]), int(self.state[k.WIDEN_VALUE]))

    def let_go(self) -> None:
        """Forget the runs that were read: their memory may be wanted."""
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
            self.let_go()

    @property
    def failed(self) -> bool:
        """Whether some computation failed since `run` was called."""
        return bool(self.state[k.FAILURE])


def _table(rows: Sequence[Sequence[int]], width: int) -> Array:
    return np.array(rows, np.int64).reshape(-1, width)


def _joined_pieces(
    pieces: list[tuple[int, int, int, int]],
) -> list[tuple[int, int, int, int]]:
    """Return the pieces with those joined that lie side by side in the row and in the head."""
    joined: list[tuple[int, int, int, int]] = []
    for word, shift, mask, into in sorted(pieces):
        if joined:
            before = joined[-1]
            width = int(before[2]).bit_length()
            if (
                before[0] == word
                and before[2] >= 0
                and mask >= 0
                and before[1] + width == shift
                and before[3] + width == into
            ):
                wide = width + int(mask).bit_length()
                joined[-1] = (word, before[1], (1 << wide) - 1, before[3])
                continue
        joined.append((word, shift, mask, into))
    return joined


class Functors:
    """Writes the code of functors on ordinals."""

    def __init__(self, code: list[tuple[int, int, int, int]], fresh: Any, number: Any) -> None:
        self._code, self._fresh, self._number = code, fresh, number

    def _op(self, op: Op, a: int, b: int = 0) -> int:
        into: int = self._fresh()
        self._code.append((op, into, a, b))
        return into

    def add(self, value: Apply, args: list[int]) -> int:
        """Add the code of `value`; return the slot of the result."""
        kind = value.type.kind
        if value.op in ("min", "max"):
            op = Op.MIN if value.op == "min" else Op.MAX
            result = args[0]
            for arg in args[1:]:
                result = self._op(op, result, arg)
            return result
        if value.op in ("to_number", "to_unsigned", "to_float"):
            return self._convert(value, args[0])
        if kind is Kind.FLOAT:
            return self._op(Op[f"F_{value.op.upper()}"], *args)
        if value.op in ("add", "sub", "mul", "div", "mod", "pow", "neg"):
            if kind is Kind.UNSIGNED:
                return self._op(Op[f"U_{value.op.upper()}"], *args)
            result = self._op(Op[value.op.upper()], *args)
            return self._in_range(result, value.type)
        return self._bits(value, args)

    def _in_range(self, result: int, type_: Type) -> int:
        bounds = {
            Kind.DECIMAL: (-(10**type_.precision) + 1, 10**type_.precision - 1),
            Kind.DATE: (-719162, 2932896),
            Kind.TIMESTAMP: (-62135596800000000, 253402300799999999),
        }.get(type_.kind)
        if bounds is None:
            return result
        low = self._number(bounds[0])
        self._number(bounds[1])
        return self._op(Op.WITHIN, result, low)

    def _bits(self, value: Apply, args: list[int]) -> int:
        """Bit patterns of unsigned numbers are their ordinals with the highest bit flipped."""
        unsigned = value.type.kind is Kind.UNSIGNED
        if unsigned:
            args = [self._op(Op.FLIP, arg) for arg in args]
        op = Op[value.op.upper()]
        if unsigned and op is Op.BSHR:
            op = Op.BSHRU
        result = self._op(op, *args)
        return self._op(Op.FLIP, result) if unsigned else result

    def _convert(self, value: Apply, arg: int) -> int:
        source, target = value.types[0].kind, value.type.kind
        if source is target:
            return arg
        if source is Kind.DECIMAL:
            raise AssertionError("decimals are converted outside")
        if source in (Kind.BOOL, Kind.DATE, Kind.TIMESTAMP):
            return arg  # their ordinal is the number
        names = {Kind.NUMBER: "N", Kind.UNSIGNED: "U", Kind.FLOAT: "F"}
        return self._op(Op[f"{names[source]}_TO_{names[target]}"], arg)
