"""A program as arrays, so that the kernel runs a short epoch in one call (kernel/epoch.py).

Each strategy adds the steps of its layer, if the kernel can run it (`Strategy.add_steps`). Where it
cannot, the relations that the layer reads *refuse*: an epoch that changes one of them is run by the
strategies.

The program has to be made again when plans or layouts are out of date, or when a relation gets
another order. When only runs have changed, it is enough to take these over (`attach`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tidelog.join.joins import LARGE_CHANGE
from tidelog.join.program import JoinProgram
from tidelog.join.rules import RuleJoins
from tidelog.kernel import epoch as kernel
from tidelog.kernel import epoch_layout as e
from tidelog.kernel.accumulate import ROW
from tidelog.kernel.descriptors import MOST_RUNS
from tidelog.kernel.join_layout import DESCRIPTION_SIZE, DRIVER_WORDS, PLAIN
from tidelog.plan.body import OnFailure, is_external
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.index import Index
from tidelog.store.open_rows import OpenRows
from tidelog.store.relation import StoredRelation
from tidelog.store.run import address
from tidelog.store.sibling_sums import SummedColumn
from tidelog.store.versions import Delta

Array = NDArray[np.int64]
_TWICE = 2 * e.MOST_ROWS
_NO_COPIES = np.zeros((0, 5), np.int64)
_NO_KEY = np.zeros(0, np.int64)


@dataclass
class Drive:
    """What a rule derives from the changes of one relation."""

    source: StoredRelation
    sign: int
    """-1 for a negated atom; 0 if only failures matter."""
    copies: Array = field(default_factory=lambda: _NO_COPIES)
    """Where the columns are that it copies, if it does (kernel/epoch_layout.py)."""
    joins: RuleJoins | None = None
    place: int = 0
    new: frozenset[int] | None = None
    """The atoms that are read as after the epoch; None: those before `place`."""
    fields: Array | None = None
    """Where the columns are in the rows to start from, if these are not rows of the source."""


def drives_of(catalog: Catalog, joins: RuleJoins) -> list[Drive] | None:
    """Return what drives the joins of a rule from its atoms; None if the kernel cannot run them."""
    relations, rule = catalog.relations, joins.rule
    if any(not catalog.is_stored(atom.relation) for atom in rule.atoms):
        return None
    if any(map(is_external, rule.conditions)):
        return None
    # A failure ends a short epoch; what fails then derives a row, or is an error.
    sign = 0 if rule.on_failure is OnFailure.DERIVE else 1
    return [
        Drive(relations[a.relation], -sign if a.negated else sign, joins=joins, place=place)
        for place, a in enumerate(rule.atoms)
    ]


@dataclass(frozen=True)
class ExtremeLookup:
    """How the extreme of a group of a relation is found: its first or last row in an order."""

    order: tuple[int, ...]
    group: tuple[int, ...]
    target: int
    is_largest: bool


@dataclass
class _Step:
    kind: int
    result: StoredRelation
    given: StoredRelation | None
    source: StoredRelation | None
    drives: Sequence[Drive] = ()
    sums: Sequence[SummedColumn] = ()
    key: Array = field(default_factory=lambda: _NO_KEY)
    lookup: ExtremeLookup | None = None
    is_max: bool = False

    @property
    def reads(self) -> set[int]:
        """The relations whose changes it follows, by identity."""
        return {id(relation) for relation in self.relations if relation is not self.result}

    def reached_by(self, changing: set[int]) -> _Step:
        """Return the step without what relations drive that cannot change."""
        if self.kind == e.SEMI_JOIN_STEP:  # its drives have fixed places
            return self
        return replace(self, drives=[d for d in self.drives if id(d.source) in changing])

    @property
    def relations(self) -> list[StoredRelation]:
        """Its result, and the relations whose changes it follows."""
        found = [self.result, *(drive.source for drive in self.drives)]
        return found + [r for r in (self.given, self.source) if r is not None]


class EpochProgram:
    """The layers of a catalog as a program of arrays."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._all_steps: list[_Step] = []
        self._steps: list[_Step] = []  # of those that matter now
        self._refused: set[int] = set()
        self._empty: list[StoredRelation] = []
        self._eligible: dict[int, bool] = {}
        self._kept: list[object] = []  # what the arrays have addresses of
        self._with_records: list[JoinProgram] = []
        self._relations: Sequence[StoredRelation] = ()
        self._orders: list[tuple[Index, ...]] = []
        self._stamp = catalog.stamp
        self._attached = -1
        self.is_finished = False
        """Whether the arrays are made."""
        for name in catalog.checked:
            self._refused.add(id(catalog.relations[name]))

    # --- what strategies add ---

    def count(
        self, result: StoredRelation, given: StoredRelation | None, drives: Sequence[Drive]
    ) -> None:
        """Add a step for a relation: its derivations are counted, and its given rows, if any."""
        self._all_steps.append(_Step(e.COUNT_STEP, result, given, None, drives))

    def add_up(
        self,
        source: StoredRelation,
        result: StoredRelation,
        key: Array,
        sums: Sequence[SummedColumn],
    ) -> None:
        """Add a step for a relation that has sums of the rows of another one, by a key."""
        self._all_steps.append(_Step(e.SUM_STEP, result, None, source, sums=sums, key=key))

    def look_up(
        self, source: StoredRelation, result: StoredRelation, lookup: ExtremeLookup
    ) -> None:
        """Add a step for a relation that has the extremes of the groups of another one."""
        self._all_steps.append(_Step(e.EXTREME_STEP, result, None, source, lookup=lookup))

    def join(self, result: StoredRelation, drives: Sequence[Drive]) -> None:
        """Add a step for a relation without rows: no row has two derivations."""
        self._all_steps.append(_Step(e.TREE_STEP, result, None, None, drives))

    def semi_join(
        self,
        result: StoredRelation,
        extreme: StoredRelation,
        drives: Sequence[Drive],
        *,
        is_max: bool,
    ) -> None:
        """Add a step for the rows of a guard that have a partner.

        The drives are an extreme that moves, one that comes or goes, and a row of the guard.
        """
        self._all_steps.append(
            _Step(e.SEMI_JOIN_STEP, result, None, extreme, drives, is_max=is_max)
        )

    def refuse_given(self, relation: str) -> None:
        """Let the strategies run the epochs that give rows of a derived relation."""
        self._refused.add(id(self._catalog.given[relation]))

    def require_empty(self, relation: StoredRelation) -> None:
        """Let the strategies run all epochs while a relation has rows."""
        self._empty.append(relation)

    def refuse(self, layer: Layer) -> None:
        """Let the strategies run the epochs that change what a layer reads."""
        relations, given = self._catalog.relations, self._catalog.given
        read = {atom.relation for rule in layer.rules for atom in rule.atoms}
        if layer.aggregation is not None:
            read.add(layer.aggregation.source)
            if layer.aggregation.ranged is not None:
                read.update(r.relation for r in layer.aggregation.ranged.reads if r is not None)
        if layer.recompute is not None:
            read |= layer.recompute.reads
        if layer.tree is not None:
            rules = [rule for part in layer.tree.parts for rule in (part.rule, part.whole)]
            read.update(atom.relation for rule in rules for atom in rule.atoms)
        self._refused.update(id(relations[name]) for name in read if name in relations)
        self._refused.update(id(given[name]) for name in layer.relations)

    # --- making the arrays ---

    def finish(self, wanted: Iterable[StoredRelation]) -> None:
        """Make the arrays for changes of given rows: all strategies have added their steps.

        Only what these rows may lead to is planned, and has room.
        """
        catalog = self._catalog
        catalog.watch.changed()
        self._stamp = catalog.stamp
        self._kept, self._with_records = [], []
        wanted = list(wanted)
        reached = set().union(*map(self._reached, wanted))
        self._steps = [
            step.reached_by(reached)
            for step in self._all_steps
            if not reached.isdisjoint(step.reads)
        ]
        for step in self._steps:
            if step.lookup is not None and step.source is not None:
                step.source.index(step.lookup.order)
        drives: list[list[int]] = []
        reads: list[tuple[int, StoredRelation, tuple[int, ...], bool]] = []
        joins: list[Array] = []
        driven: list[list[int]] = [
            self._add_drive(drive, step.result, reads, joins)
            for step in self._steps
            for drive in step.drives
        ]
        self._relations = list(
            {
                id(relation): relation
                for relation in chain(
                    wanted,
                    (relation for step in self._steps for relation in step.relations),
                    (relation for _, relation, _, _ in reads),
                )
            }.values()
        )
        numbers = {id(relation): i for i, relation in enumerate(self._relations)}
        self._numbers = numbers
        self._orders = [tuple(relation.indexes.values()) for relation in self._relations]
        places: dict[tuple[int, tuple[int, ...]], int] = {}
        for relation in self._relations:
            for order in relation.indexes:
                places[id(relation), order] = len(places)
        self._indexes = np.zeros((len(places), e.INDEX_SIZE), np.int64)
        self._open = [
            OpenRows(
                index,
                self._indexes[places[id(relation), order]],
                is_counted=relation.counted and index is relation.primary,
            )
            for relation in self._relations
            for order, index in relation.indexes.items()
        ]
        self._describe_relations(places)
        steps: list[list[int]] = []
        sums: list[tuple[SummedColumn, Array]] = []
        lookups: list[list[int]] = []
        at = 0
        for step in self._steps:
            start = at
            for drive in step.drives:
                drives.append([numbers[id(drive.source)], drive.sign, *driven[at]])
                at += 1
            span = (start, at)
            if step.kind == e.SUM_STEP:
                span = (len(sums), len(sums) + len(step.sums))
                sums += [(column, step.key) for column in step.sums]
            elif step.lookup is not None:
                span = (len(lookups), len(lookups) + 1)
                lookups.append(self._described_lookup(step, places))
            own = numbers[id(step.result)]  # it has not changed when its step begins
            steps.append(
                [
                    step.kind, own, *span,
                    numbers[id(step.given)] if step.given is not None else own,
                    numbers[id(step.source)] if step.source is not None else own,
                    step.is_max, 0, 0,
                ]
            )  # fmt: skip
        self._sums = sums
        self._sum_rows = np.zeros((len(sums), e.SUM_SIZE), np.int64)
        self._step_rows = np.array(steps, np.int64).reshape(-1, e.STEP_SIZE)
        read_rows = [
            (atom, places[id(relation), order], is_new) for atom, relation, order, is_new in reads
        ]
        self._head = self._make_head(
            np.array(drives, np.int64).reshape(-1, e.DRIVE_SIZE),
            np.array(read_rows, np.int64).reshape(-1, e.READ_SIZE),
            np.array(joins, np.int64).reshape(-1, DESCRIPTION_SIZE),
            np.array(lookups, np.int64).reshape(-1, e.LOOKUP_SIZE),
        )
        self._attached = -1
        self.is_finished = True

    def _add_drive(
        self,
        drive: Drive,
        result: StoredRelation,
        reads: list[tuple[int, StoredRelation, tuple[int, ...], bool]],
        joins: list[Array],
    ) -> list[int]:
        """Return the numbers of a drive, from its join on; add what it reads, and its join."""
        start = len(reads)
        if drive.joins is None:
            self._kept.append(drive.copies)
            return [e.NO_JOIN, start, start, address(drive.copies), len(drive.copies)]
        compiled = drive.joins.small(drive.place, PLAIN).as_step()
        assert compiled is not None, "Python takes part in the join"
        program = compiled.program
        for atom, place, relation, order in compiled.reads:
            if order not in relation.indexes and relation.stored >= LARGE_CHANGE:
                del reads[start:]
                return [e.LATER, start, start, 0, 0]
            relation.index(order)
            is_new = place < drive.place if drive.new is None else place in drive.new
            reads.append((atom, relation, order, is_new))
        joins.append(program.description(compiled.driver))
        self._kept.append(program)
        fields = (0, 0)
        if drive.fields is not None:
            fields = (address(drive.fields), len(drive.fields))
            self._kept.append(drive.fields)
        if program.reads_records:
            self._with_records.append(program)
        return [len(joins) - 1, start, len(reads), *fields]

    def _described_lookup(
        self, step: _Step, places: dict[tuple[int, tuple[int, ...]], int]
    ) -> list[int]:
        lookup, source, result = step.lookup, step.source, step.result
        assert lookup is not None
        assert source is not None
        group = list(lookup.group)
        here, there = source.index(lookup.order).layout, result.primary.layout
        first = source.primary.layout.by_column[group]
        to_order = np.hstack([first, here.by_column[group][:, :2]])
        to_result = np.hstack([first, there.by_column[: len(group), :2]])
        result_group = range(len(group))
        arrays = [
            here.ends(lookup.group, highest=False),
            here.ends(lookup.group, highest=True),
            np.ascontiguousarray(to_order),
            np.ascontiguousarray(to_result),
            there.ends(result_group, highest=False),
            there.ends(result_group, highest=True),
        ]
        self._kept.append(arrays)
        lowest, highest, *copies, low, high = (address(array) for array in arrays)
        return [
            places[id(source), lookup.order], lowest, highest, *copies, len(group),
            *here.biased[lookup.target].tolist(), lookup.is_largest, low, high,
        ]  # fmt: skip

    def _describe_relations(self, places: dict[tuple[int, tuple[int, ...]], int]) -> None:
        passed_on = set(map(id, self._catalog.passed_on))
        self._relation_rows = np.zeros((len(self._relations), e.RELATION_SIZE), np.int64)
        self._changes: list[Array] = []
        for row, relation in zip(self._relation_rows, self._relations, strict=True):
            layout = relation.primary.layout
            held = np.zeros((2, layout.words, e.MOST_ROWS), np.int64)
            self._changes.append(held)
            self._kept.append(layout.biased)
            first = places[id(relation), layout.order]
            row[e.FIRST], row[e.LAST] = first, first + len(relation.indexes)
            row[e.R_WORDS], row[e.R_COLUMNS] = layout.words, len(relation.domains)
            row[e.R_FIELDS], row[e.ROWS] = address(layout.biased), address(held)
            row[e.IS_STORED] = id(relation) not in passed_on
            row[e.REFUSES] = id(relation) in self._refused

    def _make_head(self, drives: Array, reads: Array, joins: Array, lookups: Array) -> Array:
        """Return the head: the addresses of all tables, and of scratch."""
        columns = 1 + max((len(relation.domains) for relation in self._relations), default=1)
        orders = [open_rows.index.layout.words for open_rows in self._open]
        starts = [
            1 + int(drive.fields[:, 0].max())
            for step in self._steps
            for drive in step.drives
            if drive.fields is not None
        ]
        widest = max([1, *orders, *starts, *joins[:, DRIVER_WORDS].tolist()])
        parts = max((sum(len(s.places) for s in step.sums) for step in self._steps), default=0)
        self._touched = np.zeros(len(self._relations), np.int64)
        self._ignored = np.zeros((2 + widest, _TWICE), np.int64)
        head = np.zeros(e.HEAD_SIZE, np.int64)
        head[e.WIDEST], head[e.COLUMN_COUNT] = widest, columns + parts
        tables = {
            e.RELATIONS: self._relation_rows, e.INDEXES: self._indexes, e.STEPS: self._step_rows,
            e.DRIVES: drives, e.READS: reads, e.JOINS: joins, e.SUMS: self._sum_rows,
            e.LOOKUPS: lookups,
        }  # fmt: skip
        for at, table in tables.items():
            head[at - 1] = len(table)  # the count is before the address
        scratch = {
            **tables,
            e.TOUCHED: self._touched,
            e.IGNORED: self._ignored,
            e.OUT: np.zeros((widest, e.MOST_ROWS), np.int64),
            e.ARRANGED: np.zeros((widest, e.MOST_ROWS), np.int64),
            e.SELECTED: np.zeros((widest, e.MOST_ROWS), np.int64),
            e.TALLY: np.zeros((widest, e.MOST_ROWS + 1), np.int64),
            e.WEIGHTS: np.zeros(e.MOST_ROWS + 1, np.int64),
            e.FINGERS: np.zeros(MOST_RUNS, np.int64),
            e.ROW: np.zeros((widest, 1), np.int64),
            e.LOW: np.zeros((widest, 1), np.int64),
            e.HIGH: np.zeros((widest, 1), np.int64),
            e.COLUMNS: np.zeros((columns + parts, _TWICE), np.int64),
            e.WHICH: np.zeros(_TWICE, np.int64),
            e.LIMBS: np.zeros((_TWICE, ROW), np.int64),
            e.BEFORE: np.zeros((parts, _TWICE), np.int64),
            e.AFTER: np.zeros((parts, _TWICE), np.int64),
            e.HAD: np.zeros(_TWICE, np.bool_),
            e.HAS: np.zeros(_TWICE, np.bool_),
            e.OLD_ROWS: np.zeros((columns + parts, _TWICE), np.int64),
            e.NEW_ROWS: np.zeros((columns + parts, _TWICE), np.int64),
        }
        for at, array in scratch.items():
            head[at] = address(array)
        self._kept.append(scratch)
        return head

    # --- between epochs ---

    @property
    def is_current(self) -> bool:
        """Whether plans, layouts and orders are still those of the program."""
        return self._catalog.stamp is self._stamp and all(
            tuple(relation.indexes.values()) == orders
            for relation, orders in zip(self._relations, self._orders, strict=True)
        )

    @property
    def is_attached(self) -> bool:
        """Whether nobody else has written since `attach`."""
        return self._attached == self._catalog.watch.changes

    def attach(self) -> bool:
        """Take over what others have written; return False if the strategies must run the epoch."""
        if self.is_attached:
            return True
        watch = self._catalog.watch
        if any(len(relation) for relation in self._empty):
            return False
        watch.descriptors.clear()
        for open_rows in self._open:
            self._attach_order(open_rows)
        for row, (column, key) in zip(self._sum_rows, self._sums, strict=True):
            if not column.describe(row, key):
                return False
        watch.catch_up = self.catch_up
        self._attached = watch.changes
        return True

    def _attach_order(self, open_rows: OpenRows) -> None:
        open_rows.attach()
        known, described = self._catalog.watch.descriptors, open_rows.descriptors
        known.pop(id(open_rows.index), None)
        if described is not None:
            known[id(open_rows.index)] = described

    def catch_up(self) -> None:
        """Show what short epochs have done in the runs of all orders."""
        self._catalog.watch.is_ahead = False
        for open_rows in self._open:
            open_rows.catch_up()

    def is_eligible(self, given: StoredRelation) -> bool:
        """Return whether no layer that may depend on given rows refuses."""
        found = self._eligible.get(id(given))
        if found is None:
            found = self._reached(given).isdisjoint(self._refused)
            self._eligible[id(given)] = found
        return found

    def _reached(self, given: StoredRelation) -> set[int]:
        """Return the relations that a change of given rows may change, by identity."""
        reached = {id(given)}
        for step in self._all_steps:
            if not reached.isdisjoint(step.reads):
                reached.add(id(step.result))
        return reached

    # --- an epoch ---

    def run(self, changes: Iterable[tuple[StoredRelation, Array, Array]], *, commits: bool) -> int:
        """Run an epoch of given rows; return the status of the kernel.

        If it is DONE, the epoch is committed, or waits for `commit` or `abort`; else it is undone.
        """
        for program in self._with_records:
            program.refresh(self._catalog.record_address)
        head, status = self._head, 0
        self._catalog.watch.is_ahead = True
        is_first = True
        for given, adds, removes in changes:
            status = kernel.give(head, is_first, self._numbers[id(given)], adds, removes)
            is_first = False
            if status != e.DONE:
                return int(status)
        return int(kernel.derive(head, commits))

    def commit(self) -> None:
        """Commit the epoch that waits."""
        self._catalog.watch.is_ahead = True
        kernel.end(self._head, False)

    def abort(self) -> None:
        """Undo the epoch that waits."""
        self._catalog.watch.is_ahead = True
        kernel.end(self._head, True)

    def provide(self, status: int) -> bool:
        """Give the kernel what it lacks; return False if the epoch must be run in another way."""
        at = int(self._head[e.AT_INDEX])
        if status == e.NO_MARKS:
            self.catch_up()
            self._open[at].need_marks(int(self._head[e.AT_RUN]))
            return True
        if status != e.ROOM:
            return False
        self.catch_up()
        full = self._open[at].index
        relation = next(r for r in self._relations if full in r.indexes.values())
        for open_rows in self._open:  # the other orders of the relation have the same rows
            if open_rows.index in relation.indexes.values():
                open_rows.index.tidy()
                self._attach_order(open_rows)
        self._catalog.note_size(relation)
        if self._catalog.stamp is not self._stamp:
            self._attached = -1
            return False
        return True

    # --- what it has done ---

    @property
    def changed(self) -> list[tuple[StoredRelation, Delta]]:
        """The net changes of all relations that have changed."""
        rows = self._relation_rows
        found = []
        for number in self._touched[: self._head[e.TOUCHED_COUNT]].tolist():
            inserted, deleted = self._changes[number]
            new, gone = rows[number, e.INSERTED], rows[number, e.DELETED]
            delta = Delta(inserted[:, :new].copy(), deleted[:, :gone].copy())
            found.append((self._relations[number], delta))
        return found

    @property
    def given(self) -> tuple[int, int]:
        """How many given rows were inserted and deleted."""
        return int(self._head[e.GIVEN_INSERTED]), int(self._head[e.GIVEN_DELETED])

    def ignored(self) -> list[tuple[StoredRelation, bool, Array]]:
        """Return the given rows that changed nothing: relation, whether it was a delete, row."""
        found = []
        for i in range(int(self._head[e.IGNORED_COUNT])):
            number, deletes = self._ignored[:2, i].tolist()
            relation = self._relations[number]
            row = np.ascontiguousarray(self._ignored[2 : 2 + relation.words, i : i + 1])
            found.append((relation, bool(deletes), row))
        return found

    def work(self) -> dict[str, int]:
        """Return for the relations of the steps that had work how many rows their joins found."""
        work: list[list[int]] = self._step_rows[:, e.HAS_RUN :].tolist()
        return {
            step.result.name: found
            for step, (has_run, found) in zip(self._steps, work, strict=True)
            if has_run
        }

    @property
    def nbytes(self) -> int:
        """The memory of the arrays of all orders."""
        return sum(open_rows.nbytes for open_rows in self._open)
