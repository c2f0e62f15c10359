"""The join compiler: a plan becomes the arrays that the join interpreter reads.

A join is compiled once for a plan and the layouts of its relations. Running it (join/program.py)
only fills in the addresses of the runs to read, and calls the kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.join.functor_code import FunctorCode
from tidelog.join.program import JoinProgram
from tidelog.kernel import join_layout as k
from tidelog.kernel.descriptors import MOST_RUNS, WORDS
from tidelog.kernel.machine import Op
from tidelog.logic.program import Comparison
from tidelog.plan.body import Assign, Check, FunctorCall, Range, Unpack
from tidelog.plan.skipping import skipping_atom
from tidelog.plan.steps import Absent, Bound, Compute, Iterate, Leap, Plan, Scan, Seek, Step, Window
from tidelog.store.domain import Domain
from tidelog.store.layout import Layout
from tidelog.values.types import Kind, Type

BATCH = "%rows"
"""The name of the rows that an earlier stage of a join has emitted: any value fits there."""

Array = NDArray[np.int64]


@dataclass(frozen=True)
class Output:
    """The layout of the output: slot, word, shift and mask of each value."""

    words: int
    places: tuple[tuple[str, int, int, int], ...]


_COMPARE = {
    Comparison.EQ: (Op.EQ, False),
    Comparison.NE: (Op.NE, False),
    Comparison.LT: (Op.LT, False),
    Comparison.LE: (Op.LE, False),
    Comparison.GT: (Op.LT, True),
    Comparison.GE: (Op.LE, True),
}


_BOUND_KIND = {
    Comparison.LT: k.BELOW,
    Comparison.LE: k.BELOW | k.INCLUSIVE,
    Comparison.GT: 0,
    Comparison.GE: k.INCLUSIVE,
}


def compile_join(
    plan: Plan,
    layouts: Sequence[Layout],
    domains: Mapping[str, Domain],
    constants: Mapping[str, int],
    output: Output,
    mode: int = k.PLAIN,
) -> JoinProgram:
    """Compile a plan; `layouts` are those of its atoms, `constants` are slots that are known."""
    return _Compiler(plan, layouts, domains, constants, output, mode).program


class _Compiler:
    """Compiles one join."""

    def __init__(
        self,
        plan: Plan,
        layouts: Sequence[Layout],
        domains: Mapping[str, Domain],
        constants: Mapping[str, int],
        output: Output,
        mode: int,
    ) -> None:
        self.plan = plan
        self.mode = mode
        self._domains = domains
        self._slots: dict[str, int] = {}
        self._values: list[int] = []
        self._record_slots: list[tuple[int, Type, int]] = []
        self._constants = constants
        self._code: list[tuple[int, int, int, int]] = []
        self._columns: list[tuple[int, int, int, int]] = []
        self._parts: list[tuple[int, ...]] = []
        self._segments: list[tuple[int, int, int, int]] = []
        self._steps: list[list[int]] = []
        self._layouts = layouts
        self._depths = [0] * len(plan.atoms)
        self._places = [list(range(len(layout.by_depth))) for layout in layouts]
        """For each atom, the place in the layout of the column at each depth."""
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
        self.program = self._freeze(output)

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
        """Return a slot that holds a known number."""
        slot = self._fresh()
        self._values[slot] = value
        return slot

    def _ordinal(self, name: str) -> int:
        """Return a slot with the ordinal of a value, whose own slot holds its code."""
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
            case Leap():
                self._leap(step)
            case Window():
                self._window(step)
            case Seek(atom, columns):
                for depth, depth_to, start, stop in self._word_segments(atom, columns):
                    self._emit_step(
                        k.SEEK,
                        {
                            k.SEEK_ATOM: atom,
                            k.SEEK_DEPTH: depth,
                            k.SEEK_DEPTH_TO: depth_to,
                            k.SEEK_START: start,
                            k.SEEK_STOP: stop,
                        },
                    )
            case Absent(atom):
                begin = len(self._segments)
                columns = self.plan.orders[atom]
                self._segments.extend(self._word_segments(atom, columns))
                self._emit_step(
                    k.ABSENT,
                    {
                        k.ABSENT_ATOM: atom,
                        k.ABSENT_START: begin,
                        k.ABSENT_STOP: len(self._segments),
                    },
                )
            case Scan(atom, columns):
                start = len(self._columns)
                for column in columns:
                    name = self.plan.atoms[atom].args[column]
                    if name is not None:
                        word, shift, mask = self._layouts[atom].by_column[column]
                        self._columns.append((word, shift, mask, self._slot(name)))
                self._emit_step(
                    k.SCAN,
                    {
                        k.SCAN_ATOM: atom,
                        k.SCAN_DEPTH: self._depths[atom],
                        k.SCAN_START: start,
                        k.SCAN_STOP: len(self._columns),
                        k.SCAN_RUN: self._fresh(),
                    },
                )
                self._depths[atom] += len(columns)
            case Bound():
                self._bound(step)
            case Iterate(count):
                self._iterate(count)
            case Compute(what, binds):
                self._compute(what, binds)

    def _emit_step(self, operation: int, fields: Mapping[int, int]) -> None:
        step = [0] * k.STEP_SIZE
        step[k.OP] = operation
        for place, value in fields.items():
            step[place] = value
        self._steps.append(step)

    def _emit_code(self, operation: int, begin: int, result: int = 0) -> None:
        """Add a step that runs the instructions from `begin` on."""
        self._emit_step(
            operation,
            {k.CODE_START: begin, k.CODE_STOP: len(self._code), k.CODE_RESULT: result},
        )

    def _word_segments(
        self, atom: int, columns: Sequence[int]
    ) -> Iterator[tuple[int, int, int, int]]:
        """Yield the segments of columns (kernel/join_layout.py), split where a word ends."""
        layout = self._layouts[atom]
        i = 0
        while i < len(columns):
            start, depth = len(self._columns), self._depths[atom]
            word = layout.by_column[columns[i], 0]
            while i < len(columns) and layout.by_column[columns[i], 0] == word:
                slot = self.plan.atoms[atom].args[columns[i]]
                assert slot is not None
                _, shift, mask = layout.by_column[columns[i]]
                self._columns.append((word, shift, mask, self._slot(slot)))
                self._depths[atom] += 1
                i += 1
            yield depth, self._depths[atom], start, len(self._columns)

    def _leap(self, step: Leap) -> None:
        start = len(self._parts)
        for atom in step.atoms:
            self._parts.append((atom, self._depths[atom], 0, 0, 0, 0))
            self._depths[atom] += 1
        stop = len(self._parts)
        for atom in step.absent:
            begin = len(self._segments)
            self._segments.extend(self._word_segments(atom, self.plan.orders[atom][:-1]))
            whole = start + skipping_atom(self.plan, step, atom)
            self._parts.append(
                (atom, self._depths[atom], begin, len(self._segments), whole, 0)
            )  # fmt: skip
            self._depths[atom] += 1
        number = len(self._steps)
        for before in reversed(self._steps):
            if before[k.OP] == k.WINDOW and before[k.WINDOW_LEAP] < 0:
                before[k.WINDOW_LEAP] = number
        self._emit_step(
            k.LEAP,
            {
                k.LEAP_SLOT: self._slot(step.slot),
                k.LEAP_START: start,
                k.LEAP_STOP: stop,
                k.LEAP_ABSENT_STOP: len(self._parts),
            },
        )

    def _window(self, step: Window) -> None:
        begin = len(self._code)
        ordinal = self._ordinal(step.other)
        if len(self._code) > begin:
            self._emit_code(k.CALC, begin)
        domain = self._domains[step.slot]
        is_first = all(s[k.OP] != k.WINDOW or s[k.WINDOW_LEAP] >= 0 for s in self._steps)
        self._emit_step(
            k.WINDOW,
            {
                k.WINDOW_LEAP: -1,  # the leap that comes next
                k.WINDOW_SLOT: ordinal,
                k.WINDOW_OFFSET: step.offset,
                k.WINDOW_BIAS: domain.bias,
                k.WINDOW_KIND: _BOUND_KIND[step.op],
                k.WINDOW_MASK: domain.mask,
                k.WINDOW_IS_FIRST: is_first,
            },
        )

    def _bound(self, step: Bound) -> None:
        begin = len(self._code)
        ordinal = self._ordinal(step.slot)
        if len(self._code) > begin:
            self._emit_code(k.CALC, begin)
        atom, depth = step.atom, self._depths[step.atom]
        self._emit_step(
            k.BOUND,
            {
                k.BOUND_ATOM: atom,
                k.BOUND_DEPTH: depth,
                k.BOUND_SLOT: ordinal,
                k.BOUND_OFFSET: step.offset,
                k.BOUND_BIAS: int(self._layouts[atom].biased[step.column, 3]),
                k.BOUND_KIND: _BOUND_KIND[step.op],
            },
        )
        # The column has one depth for the bound, and the next one for what follows.
        self._places[atom].insert(depth, self._places[atom][depth])
        self._depths[atom] += 1

    def _iterate(self, count: Range) -> None:
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
        self._emit_code(k.CALC, begin)
        raw = self._fresh()
        self._emit_step(
            k.RANGE,
            {
                k.RANGE_INTO: raw,
                k.RANGE_START: start,
                k.RANGE_STOP: stop,
                k.RANGE_INCREMENT: step,
                k.RANGE_NEXT: self._fresh(),
            },
        )
        self._store(raw, count.into)

    def _store(self, ordinal: int, name: str) -> None:
        """Add a step that stores an ordinal as the code of slot `name`."""
        domain = self._domains.get(name)
        bias = domain.bias if domain is not None else 0
        begin = len(self._code)
        self._code.append((Op.ADD_CONST, self._slot(name), ordinal, -bias))
        self._emit_code(k.CALC, begin)

    def _compute(self, what: Assign | Check | Unpack, binds: bool) -> None:
        begin = len(self._code)
        match what:
            case Check(op, left, right):
                opcode, swapped = _COMPARE[op]
                # Codes of one domain compare as their values do, unless one was computed: it may
                # lie outside of the domain.
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
                    self._emit_code(k.CALC, begin)
                else:
                    self._test(begin, Op.EQ, result, self._ordinal(into))

    def _test(self, begin: int, opcode: int, a: int, b: int) -> None:
        into = self._fresh()
        self._code.append((opcode, into, a, b))
        self._emit_code(k.TEST, begin, into)

    def _unpack(self, record: str, into: tuple[str, ...], type_: Type) -> None:
        begin = len(self._code)
        number = self._ordinal(record)
        self._test(begin, Op.NE, number, self._number(0))
        begin = len(self._code)
        for field, name in enumerate(into):
            value, fields = self._fresh(), self._fresh()
            self._record_slots.append((fields, type_, field))
            self._code.append((Op.LOOK_UP, value, number, fields))
            domain = self._domains.get(name)
            bias = domain.bias if domain is not None else 0
            self._code.append((Op.ADD_CONST, self._slot(name), value, -bias))
        self._emit_code(k.CALC, begin)

    def _apply(self, value: FunctorCall) -> int:
        """Add the code of a functor; return the slot of its ordinal."""
        args = [self._ordinal(arg) for arg in value.args]
        return FunctorCode(self._code, self._fresh, self._number).add(value, args)

    # --- output ---

    def _finish(self, output: Output) -> None:
        """Add the last step: EMIT, or SCAN_EMIT in the place of a last SCAN."""
        last = self.plan.steps[-1] if self.plan.steps else None
        if self.mode == k.RANGES:
            self._finish_ranges(output, last)
            return
        if (
            self.mode in (k.PLAIN, k.COUNT)
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
            del self._steps[-1]
            self._emit_step(
                k.SCAN_EMIT,
                {k.SCAN_ATOM: step[k.SCAN_ATOM], k.SCAN_DEPTH: step[k.SCAN_DEPTH]},
            )
            return
        self._emits = [
            (self._slot(name), word, shift, mask) for name, word, shift, mask in output.places
        ]
        self._emit_step(k.EMIT, {})

    def _finish_ranges(self, output: Output, last: Step | None) -> None:
        """Write what is known before the last SCAN, and the range of its rows."""
        scanned: set[str | None] = set()
        if isinstance(last, Scan):
            scanned = {self.plan.atoms[last.atom].args[column] for column in last.columns}
            step = self._steps.pop()
            self._emit_step(
                k.SCAN_EMIT,
                {k.SCAN_ATOM: step[k.SCAN_ATOM], k.SCAN_DEPTH: step[k.SCAN_DEPTH]},
            )
        else:
            self._emit_step(k.EMIT, {})
        known = dict.fromkeys(name for name, *_ in output.places if name not in scanned)
        self._emits = [(self._slot(name), 0, 0, 0) for name in known]

    def _fits(self, output: Output) -> bool:
        """Return whether every value of the head is sure to fit its column."""
        from_atoms = self._from_atoms
        for name, _, _, mask in output.places:
            known = self._constants.get(name)
            if known is not None:
                if known & ~mask:
                    return False
            elif name not in from_atoms:
                return False
        return True

    def _out_height(self, output: Output) -> int:
        if self.mode == k.RANGES:
            return len(self._emits) + 2
        return output.words + {k.PLAIN: 0, k.COUNT: 0, k.RAW: 2}.get(self.mode, 1)

    def _freeze(self, output: Output) -> JoinProgram:
        atoms, depths = max(1, len(self.plan.atoms)), 1
        for places in self._places:
            depths = max(depths, len(places))
        fields = np.zeros((atoms, depths, 5), np.int64)
        for i, layout in enumerate(self._layouts):
            fields[i, : len(self._places[i])] = layout.by_depth[self._places[i]]
        words = max([layout.words for layout in self._layouts], default=1)
        ranges = (atoms, depths + 1, MOST_RUNS)
        initial = np.array(self._values or [0], np.int64)
        arrays = {
            "steps": _array(self._steps, k.STEP_SIZE),
            "parts": _array(self._parts, k.PART_SIZE),
            "columns": _array(self._columns, 4),
            "segments": _array(self._segments, 4),
            "fields": fields,
            "atoms": np.zeros((atoms, 4), np.int64),
            "runs": np.zeros((atoms, MOST_RUNS, WORDS + words), np.int64),
            "code": _array(self._code, 4),
            "emits": _array(self._emits, 4),
            "pieces": _array(self._pieces or [(0, 0, 0, 0)], 4),
            "slots": initial.copy(),
            "low": np.zeros(ranges, np.int64),
            "high": np.zeros(ranges, np.int64),
            "cursor": np.zeros(ranges, np.int64),
            "rest": np.zeros(len(self._steps) + 1, np.int64),
            "flagged": np.zeros(len(self._steps) + 1, np.int64),
        }
        names = {number: name for name, number in self._slots.items()}
        return JoinProgram(
            self.plan,
            self.mode,
            self._layouts,
            arrays,
            initial,
            tuple(self._record_slots),
            tuple(names[emit[k.EMIT_SLOT]] for emit in self._emits),
            self._out_height(output),
            self._slots,
        )


def _array(rows: Sequence[Sequence[int]], width: int) -> Array:
    return np.array(rows, np.int64).reshape(-1, width)


def _joined_pieces(
    pieces: list[tuple[int, int, int, int]],
) -> list[tuple[int, int, int, int]]:
    """Join pieces that are adjacent both in the row and in the head."""
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
