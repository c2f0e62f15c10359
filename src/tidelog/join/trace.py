"""The trace of a rule's join, maintained (leapfrog-maintenance.md, section 4).

The join runs once with recording: for every use of an atom by a step, a sensitivity index holds the
intervals of values on which the trace depends, each with the variables that were bound. An epoch
then takes four steps:

    surgery    the prefixes that appear or vanish in the tries of changed relations
    matching   the intervals that contain such a value become regions, and leave their index
    run        the join is repeated in these regions only, in the old and the new version at once;
               an assignment that only one of them has is a change
    recording  the intervals of the new version are added

A use needs no index if the atom's columns have all variables that were bound: the changed prefix is
the region then. A region says where the values of one variable may differ, not what is below it. So
a value that both versions have is entered only if there are regions below.

The indexes are a certificate, not a copy of the trace: a value that is not in the join is covered
by an interval of some atom that lacks it, and a value of the join by an interval of every atom. A
run that repeats a region may choose other atoms than a run from the start would.

Nothing of this is saved: after opening a database, and after a domain has widened, the trace is
recorded again when it is first needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from tidelog.join.compiler import Output, compile_join
from tidelog.join.joins import constant_codes, head_places, is_safe_sum, slot_domains
from tidelog.join.program import FUEL
from tidelog.kernel import intervals
from tidelog.kernel import join_layout as k
from tidelog.kernel import rows as kernel
from tidelog.kernel import trace as t
from tidelog.kernel.descriptors import MOST_RUNS
from tidelog.kernel.marks import ALIVE, DEAD_NOW
from tidelog.plan.body import LoweredRule
from tidelog.plan.bounds import SlotBound, slot_bounds
from tidelog.plan.complements import is_subset
from tidelog.plan.order import Orderer
from tidelog.plan.skipping import complemented, windowed
from tidelog.plan.traces import leaps_only, named_atoms, small_atoms
from tidelog.store.catalog import Catalog
from tidelog.store.domain import DomainOverflow
from tidelog.store.layout import Layout
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run, Words
from tidelog.store.sensitivity import HIGHEST, LOWEST, SensitivityIndex
from tidelog.store.versions import Version

Array = NDArray[np.int64]

_PRICE = 0.5  # of another order, as for other joins
_ROOM = 1 << 15  # rows of the buffers
_GROWTH = 2  # the trace is recorded again when its indexes have grown this much
_SLACK = 4096


@dataclass
class TraceStatistics:
    """What the last epoch took."""

    surgeries: int = 0
    matched: int = 0
    """Intervals that contained a changed value."""
    regions: int = 0
    operations: int = 0
    """How often an iterator was moved."""
    recorded: int = 0
    """Intervals that were recorded."""

    def in_words(self) -> str:
        """Return what was counted, for `explain`."""
        return (
            f"{self.matched:,} intervals matched, {self.regions:,} regions visited,"
            f" {self.operations:,} iterator operations"
        )

    def add(self, other: TraceStatistics) -> None:
        """Add what another rule took."""
        for field in fields(self):
            total = getattr(self, field.name) + getattr(other, field.name)
            setattr(self, field.name, total)


@dataclass(frozen=True)
class AtomPrefixUse:
    """A step that reads the prefixes of some length of an atom, in an order of its columns."""

    atom: int
    relation: str
    order: tuple[int, ...]
    key: tuple[str, ...]
    """The slots of the columns before the last one."""
    last: str
    """The slot of the last column."""
    node: tuple[str, ...]
    """The variables that are bound before the step."""
    is_point: bool
    """Whether it looks up one value, instead of leaping to the next one."""
    others: tuple[str, ...]
    """The variables of the node that the columns do not have."""
    index: SensitivityIndex | None


class RuleTrace:
    """Maintains the join of one rule."""

    def __init__(self, catalog: Catalog, rule: LoweredRule, *, is_plain: bool = False) -> None:
        """Plan the join.

        A plain trace is that of the paper's exposition: every use has an index, also where none is
        needed, and leaps open all of their atoms.
        """
        self.rule = rule
        self.statistics = TraceStatistics()
        self.regions: Array = np.zeros((0, 4), np.int64)
        """The change oracle of the last epoch: level, values of the node, interval, recorded?"""
        self.failed = False
        """Whether a computation has failed since the trace was recorded.

        Steps behind it did not run, so changes that concern them are not noticed there.
        """
        self.estimate = 0.0
        """How many bytes the indexes would take, if recording was given up."""
        self._catalog = catalog
        self._names = {rule.head.relation: None, **{a.relation: None for a in rule.atoms}}
        self._generations = self._current_generations()
        self._stamp: object = None
        self._recorded = -1
        self._is_plain = is_plain
        self._compile()
        self._find_uses()
        self._allocate()

    # --- compiling ---

    def _compile(self) -> None:
        catalog, rule = self._catalog, self.rule
        atoms = named_atoms(rule)
        relations = [catalog.relations[atom.relation] for atom in atoms]
        self._domains = slot_domains(catalog, (rule.head, *atoms))
        bounds = () if self._is_plain else self._bounds()
        small = small_atoms(atoms, lambda i: catalog.stats(atoms[i].relation).rows)
        plan = Orderer(
            atoms,
            rule.conditions,
            frozenset(rule.constants),
            None,
            lambda i: catalog.stats(atoms[i].relation),
            lambda i: tuple(relations[i].indexes),
            _PRICE,
            bounds=bounds,
            kept=rule.head.slots,
            late=frozenset(slot for i in small for slot in atoms[i].slots),
            alone=frozenset(bound.other for bound in bounds),
        ).plan()
        self.plan = leaps_only(plan, small)
        if not self._is_plain:
            known = rule.constants.keys() - self._domains.keys()
            self.plan = windowed(self.plan, bounds, known)
            self.plan = complemented(self.plan, lambda i: tuple(relations[i].indexes))
        head = catalog.relations[rule.head.relation].primary.layout
        layouts = [
            Layout(order, catalog.domains(atom.relation))
            for atom, order in zip(self.plan.atoms, self.plan.orders, strict=True)
        ]
        self._constants = constant_codes(catalog, rule, self._domains)
        output = Output(head.words, tuple(head_places(rule.head, head)))
        self._program = compile_join(self.plan, layouts, self._domains, self._constants, output)
        self._steps = self._program.arrays["steps"]

    def _bounds(self) -> tuple[SlotBound, ...]:
        return slot_bounds(
            self.rule.conditions,
            self.rule.constants,
            lambda slot, number, type_: is_safe_sum(self._domains.get(slot), number, type_),
        )

    def _find_uses(self) -> None:
        """Find the uses of atoms, and make their indexes."""
        parts = self._program.arrays["parts"]
        part_uses, step_uses = [-1] * len(parts), [-1] * len(self._steps)
        self._node: list[str] = []
        self.uses: list[AtomPrefixUse] = []
        self.indexes: list[SensitivityIndex] = []
        for number, step in enumerate(self._steps):
            if step[k.OP] == k.LEAP:
                for part in range(step[k.LEAP_START], step[k.LEAP_ABSENT_STOP]):
                    atom, depth = (int(n) for n in parts[part, :2])
                    part_uses[part] = self._add_use(atom, depth + 1, False)
                atom, depth = (int(n) for n in parts[step[k.LEAP_START], :2])
                self._node.append(self._slot_of(atom, depth))
            elif step[k.OP] in (k.SEEK, k.ABSENT):
                atom = int(step[k.SEEK_ATOM])
                whole = len(self.plan.orders[atom])
                length = int(step[k.SEEK_DEPTH_TO]) if step[k.OP] == k.SEEK else whole
                step_uses[number] = self._add_use(atom, length, True)
        self._subsets = list(self._find_subsets())
        self._part_uses = np.array(part_uses or [-1], np.int64)
        self._step_uses = np.array(step_uses, np.int64)

    def _find_subsets(self) -> Iterator[tuple[int, str]]:
        """Yield negated atoms of leaps that are subsets of the atom which skips for them.

        That is so as long as their relations have no given rows.
        """
        parts, layers = self._program.arrays["parts"], self._catalog.lowered.layers
        for step in self._steps:
            if step[k.OP] == k.LEAP:
                for number in range(step[k.LEAP_STOP], step[k.LEAP_ABSENT_STOP]):
                    part = self.plan.atoms[parts[number, k.PART_ATOM]]
                    whole = self.plan.atoms[parts[parts[number, k.PART_WHOLE], k.PART_ATOM]]
                    if part.slots == whole.slots and len(whole.args) == len(part.args):
                        order = tuple(part.args.index(slot) for slot in whole.args)
                        if is_subset(part.relation, whole.relation, order, layers):
                            yield number, part.relation

    def _slot_of(self, atom: int, depth: int) -> str:
        slot = self.plan.atoms[atom].args[self.plan.orders[atom][depth]]
        assert slot is not None
        return slot

    def _add_use(self, atom: int, length: int, is_point: bool) -> int:
        """Add a use of the prefixes of some length; return the number of its index, or -1."""
        relation, order = self.plan.atoms[atom].relation, self.plan.orders[atom]
        slots = [self._slot_of(atom, depth) for depth in range(length)]
        key, last = tuple(slots[:-1]), slots[-1]
        own = slots if is_point else key
        others = tuple(slot for slot in self._node if slot not in own)
        index = None
        if others or (self._is_plain and (self._node or not is_point)):
            domains = self._catalog.domains(relation)
            columns = [domains[column] for column in order[:length]]
            index = SensitivityIndex(
                f"{self.rule.head.relation}@{relation}{len(self.indexes)}",
                columns[:-1],
                columns[-1],
                [self._domains[slot] for slot in others],
            )
            self.indexes.append(index)
        self.uses.append(
            AtomPrefixUse(
                atom, relation, order[:length], key, last, tuple(self._node), is_point, others,
                index,
            )
        )  # fmt: skip
        return -1 if index is None else len(self.indexes) - 1

    def _allocate(self) -> None:
        """Make the arrays that the interpreter needs beside those of the join."""
        numbers, arrays = self._program.slot_numbers, self._program.arrays
        starts, places = [0], []
        for use in self.uses:
            if use.index is None:
                continue
            sources = [numbers[slot] for slot in use.key]
            sources += [t.FROM_FIRST, t.FROM_LAST, *(numbers[slot] for slot in use.others)]
            for source, field in zip(sources, use.index.fields.tolist(), strict=True):
                places.append((source, *field))
            starts.append(len(places))
        self._use_starts = np.array(starts, np.int64)
        self._places = np.array(places, np.int64).reshape(-1, 4)
        atoms, depths, _ = arrays["low"].shape
        steps = len(self._steps)
        self._ranges = [np.zeros((2, atoms, depths, MOST_RUNS), np.int64) for _ in range(3)]
        self._counts = np.zeros((2, atoms), np.int64)
        self._limits = np.array([DEAD_NOW, ALIVE], np.int64)
        self._level_of = np.zeros(steps, np.int64)
        leaps = [i for i, step in enumerate(self._steps) if step[k.OP] == k.LEAP]
        self._level_of[leaps] = np.arange(len(leaps))
        self._levels = np.zeros((len(leaps), 4), np.int64)
        self._levels[:, t.LEVEL_SLOT] = self._steps[leaps, k.LEAP_SLOT]
        self._work = np.zeros((steps, t.WORK_SIZE), np.int64)
        self._work[:, t.LOW], self._work[:, t.HIGH] = LOWEST, HIGHEST
        self._position = np.zeros((2, max(1, len(arrays["parts"])), 2), np.int64)
        self._statuses = np.zeros((2, steps + 1), np.int64)
        self._state = np.zeros(t.STATE_SIZE, np.int64)
        self._no_regions = np.zeros((0, len(leaps) + 3), np.int64)
        words = max((index.words for index in self.indexes), default=1)
        self._out = np.empty((self._program.out_height + 1, _ROOM), np.int64)
        self._no_out = np.empty((self._program.out_height + 1, 0), np.int64)
        self._records = np.empty((t.RECORD_WORDS + words, _ROOM), np.int64)
        self._kept: list[object] = []

    # --- state ---

    def _current_generations(self) -> tuple[int, ...]:
        return tuple(d.generation for name in self._names for d in self._catalog.domains(name))

    @property
    def is_current(self) -> bool:
        """Whether the plan and the indexes are still those of the layouts, and not too large."""
        if self._recorded >= 0:
            size = sum(index.stored for index in self.indexes)
            if size > _GROWTH * self._recorded + _SLACK:
                return False
        if self._stamp is not self._catalog.stamp:
            if self._generations != self._current_generations():
                return False
            self._stamp = self._catalog.stamp
        return True

    @property
    def is_recorded(self) -> bool:
        """Whether the indexes are filled."""
        return self._recorded >= 0

    @property
    def nbytes(self) -> int:
        """The memory of the indexes."""
        return sum(index.nbytes for index in self.indexes)

    @property
    def reads(self) -> tuple[str, ...]:
        """The relations that the rule reads."""
        return tuple(dict.fromkeys(atom.relation for atom in self.rule.atoms))

    # --- running ---

    def record(self, version: Version, most: float = math.inf) -> bool:
        """Run the whole join on a version, and record its trace. Nothing is emitted.

        Returns False, and stops, if the intervals take more than `most` bytes. Then `estimate` says
        how many bytes all of them would take.
        """
        size = 0
        found: list[list[Words]] = [[] for _ in self.indexes]
        self._read(version)
        self._levels[:, t.LEVEL_START : t.LEVEL_AT] = 0
        for records in self._run(t.NEW, self._no_regions, self._no_out):
            for number, _, rows in records:
                found[number].append(rows)
                size += rows.nbytes
            if size > most:
                self.estimate = size / max(self._share_done(), 1e-6)
                return False
            self._catalog.meter.found(0)
        self.failed = bool(self._state[t.FAILURE])
        for index, chunks in zip(self.indexes, found, strict=True):
            index.load(_joined(chunks, np.empty((index.words, 0), np.int64)))
        self._recorded = sum(index.stored for index in self.indexes)
        self.statistics = TraceStatistics(
            operations=int(self._state[t.OPERATIONS]), recorded=self._recorded
        )
        return True

    def _share_done(self) -> float:
        """Return how much of the join has run: the share of the rows that its first leap passed."""
        parts = self._program.arrays["parts"]
        first = next((step for step in self._steps if step[k.OP] == k.LEAP), None)
        if first is None:
            return 1.0
        atom, depth = (int(n) for n in parts[first[k.LEAP_START], :2])
        low, high, cursor = (ranges[1, atom, depth] for ranges in self._ranges)
        runs = int(self._counts[1, atom])
        whole = int((high[:runs] - low[:runs]).sum())
        return int((cursor[:runs] - low[:runs]).sum()) / whole if whole else 1.0

    def follow(self) -> tuple[Words, Array]:
        """Return the heads of changed assignments, each with the weight 1 or -1.

        The trace is as the new version has it afterwards.
        """
        self.statistics = TraceStatistics()
        removed: list[list[Words]] = [[] for _ in self.indexes]
        regions, is_root_touched = self._matched(removed)
        added: list[list[Words]] = [[] for _ in self.indexes]
        heads: list[Words] = []
        if regions.shape[0] or is_root_touched:
            self._read(None)
            for records in self._run(t.BOTH, regions, self._out):
                for number, sign, rows in records:
                    (added if sign > 0 else removed)[number].append(rows)
                    self.statistics.recorded += rows.shape[1] if sign > 0 else 0
                filled = int(self._state[t.FILLED])
                if filled:
                    heads.append(self._out[:, :filled].copy())
                    self._state[t.FILLED] = 0
                self._catalog.meter.found(filled)
            self.statistics.operations = int(self._state[t.OPERATIONS])
            self.statistics.regions = int(self._state[t.VISITED])
            self.failed = self.failed or bool(self._state[t.FAILURE])
        for index, gone, come in zip(self.indexes, removed, added, strict=True):
            if gone or come:
                none = np.empty((index.words, 0), np.int64)
                index.change(_joined(gone, none), _joined(come, none))
        out = _joined(heads, self._no_out)
        return np.ascontiguousarray(out[:-1]), out[-1]

    def _read(self, version: Version | None) -> None:
        """Set what the atoms read: with None two versions, otherwise that one as the new one."""
        self._limits[1] = ALIVE if version is None else version.limit
        self._kept.clear()
        runs, high = self._program.arrays["runs"], self._ranges[1]
        for number, (atom, order) in enumerate(zip(self.plan.atoms, self.plan.orders, strict=True)):
            index = self._catalog.relations[atom.relation].index(order)
            descriptors = index.descriptors()
            old, new = len(index.runs), descriptors.shape[0]
            if version is not None and not version.with_tail:
                new = old
            t.read_both(runs, high, self._counts, number, descriptors, old, new)
            self._kept.append(index.all_runs())
        for part, relation in self._subsets:
            is_given = self._catalog.given[relation].stored > 0
            self._program.arrays["parts"][part, k.PART_IS_SUBSET] = not is_given
        self._program.refresh(self._catalog.record_address)

    def _run(
        self, status: int, regions: Array, out: Words
    ) -> Iterator[list[tuple[int, int, Words]]]:
        """Run the join from its beginning; yield what is recorded: index, sign and rows."""
        arrays, state = self._program.arrays, self._state
        low, high, cursor = self._ranges
        t.restart(
            state, arrays["slots"], self._program.initial, self._levels, self._statuses, status,
            self._is_plain,
        )  # fmt: skip
        done = False
        while not done:
            state[t.FUEL] = FUEL
            result = t.trace(
                self._steps, arrays["parts"], arrays["columns"], arrays["segments"],
                arrays["fields"], arrays["runs"], arrays["code"], arrays["emits"], arrays["slots"],
                low, high, cursor, self._counts, self._limits, self._level_of, self._levels,
                regions, self._part_uses, self._step_uses, self._use_starts, self._places,
                self._work, self._position, self._statuses, out, self._records, state,
            )  # fmt: skip
            if result == t.WIDEN:
                slot = self._program.emitted[state[t.WIDEN_COLUMN]]
                domain = self._domains[slot]
                raise DomainOverflow(domain, int(state[t.WIDEN_VALUE]) + domain.bias)
            done = result == t.DONE
            yield self._take_records()
        self._kept.clear()

    def _take_records(self) -> list[tuple[int, int, Words]]:
        """Return the recorded rows by index and sign, and make room for more."""
        n = int(self._state[t.RECORDED])
        self._state[t.RECORDED] = 0
        if not n:
            return []
        records = self._records[:, :n]
        numbers, signs = records[t.RECORD_INDEX], records[t.RECORD_SIGN]
        found = []
        for number, index in enumerate(self.indexes):
            for sign in (1, -1):
                chosen = (numbers == number) & (signs == sign)
                if chosen.any():
                    words = records[t.RECORD_WORDS : t.RECORD_WORDS + index.words, chosen]
                    found.append((number, sign, np.ascontiguousarray(words)))
        return found

    # --- surgery and matching ---

    def _matched(self, removed: Sequence[list[Words]]) -> tuple[Array, bool]:
        """Return the regions that changes touch, and whether a step before all leaps may differ.

        The intervals that they match are added to `removed`.
        """
        surgeries: dict[object, Array] = {}
        blocks: list[Array] = []
        is_root_touched = False
        number = -1
        for use in self.uses:
            number += use.index is not None
            delta = self._catalog.relations[use.relation].delta
            if not delta:
                continue
            changed = surgeries.get((use.relation, use.order))
            if changed is None:
                relation = self._catalog.relations[use.relation]
                appeared, vanished = tree_surgery(
                    relation, self.plan.orders[use.atom], len(use.order)
                )
                changed = np.concatenate((appeared, vanished), axis=1)
                surgeries[use.relation, use.order] = changed
                self.statistics.surgeries += changed.shape[1]
            if not changed.shape[1]:
                continue
            if use.is_point and not use.node:
                is_root_touched = True
            elif use.index is None:
                blocks.append(self._regions(use, *self._given_nodes(use, changed)))
            else:
                rows = use.index.containing(changed)
                if rows.shape[1]:
                    self.statistics.matched += rows.shape[1]
                    removed[number].append(rows)
                    blocks.append(self._regions(use, *self._matched_nodes(use, rows)))
        if not blocks:
            self.regions = np.zeros((0, len(self._levels) + 4), np.int64)
            return self._no_regions, is_root_touched
        regions = np.concatenate(blocks)
        regions = regions[np.lexsort(regions.T[::-1])]
        united = np.empty_like(regions)
        self.regions = regions = united[: intervals.unite(regions, len(regions), united)]
        ends = np.searchsorted(regions[:, 0], np.arange(len(self._levels) + 1))
        self._levels[:, t.LEVEL_START], self._levels[:, t.LEVEL_STOP] = ends[:-1], ends[1:]
        return np.ascontiguousarray(regions[:, 1:]), is_root_touched

    def _given_nodes(self, use: AtomPrefixUse, changed: Array) -> tuple[list[Array], Array, Array]:
        """Return nodes and intervals that follow from changed prefixes alone."""
        slots = (*use.key, use.last)
        keep = np.ones(changed.shape[1], np.bool_)
        column_of: dict[str, int] = {}
        for column, slot in enumerate(slots):
            if slot in self._constants:
                keep &= changed[column] == self._constants[slot]
            elif slot in column_of:
                keep &= changed[column] == changed[column_of[slot]]
            else:
                column_of[slot] = column
        if not keep.all():
            changed = changed[:, keep]
        return [changed[column_of[slot]] for slot in use.node], changed[-1], changed[-1]

    def _matched_nodes(self, use: AtomPrefixUse, rows: Words) -> tuple[list[Array], Array, Array]:
        """Return the nodes and intervals of rows of an index."""
        assert use.index is not None
        codes = use.index.codes(rows)
        width = len(use.key)
        column_of = {slot: width + 2 + i for i, slot in enumerate(use.others)}
        if use.is_point:
            column_of[use.last] = width
        column_of.update({slot: column for column, slot in enumerate(use.key)})
        first, last = codes[width], codes[width + 1]
        return [codes[column_of[slot]] for slot in use.node], *use.index.ends(first, last)

    def _regions(self, use: AtomPrefixUse, node: list[Array], first: Array, last: Array) -> Array:
        """Return regions, and the values above them that lead there."""
        if use.is_point:  # the last variable of the node is visited again
            *node, first = node
            last = first
        n, level = len(first), len(node)
        block = np.zeros((level + 1, n, len(self._levels) + 4), np.int64)
        for above in range(level + 1):
            block[above, :, 0] = above
            for i in range(above):
                block[above, :, 1 + i] = node[i]
            block[above, :, -3] = first if above == level else node[above]
            block[above, :, -2] = last if above == level else node[above]
            block[above, :, -1] = above == level
        return block.reshape(-1, block.shape[2])


def tree_surgery(
    relation: StoredRelation, order: tuple[int, ...], length: int
) -> tuple[Array, Array]:
    """Return the prefixes of some length that the epoch adds to a trie, and those it removes.

    They are columns of codes. A prefix appears with its first row, and vanishes with its last.
    """
    index = relation.index(order)
    fields = index.layout.by_depth[:length]
    found = []
    for rows, version in (
        (relation.delta.inserted, Version.OLD),
        (relation.delta.deleted, Version.NEW),
    ):
        n = rows.shape[1]
        codes = np.empty((length, n), np.int64)
        if n:
            words = relation.arranged(Run(rows), order).words
            kernel.unpack(words, n, np.ascontiguousarray(fields[:, :3]), codes)
            descriptors = index.descriptors()
            count = descriptors.shape[0] if version.with_tail else len(index.runs)
            changed = np.empty((length, n), np.bool_)
            intervals.surgeries(descriptors, count, version.limit, fields, codes, n, changed)
            codes = codes[:, changed[-1]]
        found.append(codes)
    return found[0], found[1]


def _joined(parts: list[Words], none: Words) -> Words:
    if not parts:
        return none
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
