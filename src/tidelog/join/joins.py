"""One join of a rule: its plan, its stages, and what its atoms read.

A rule is joined in many ways: from each of its atoms when that atom's relation has changed, from
its head to find the derivations of known rows, or from nothing at first. Each way is planned and
compiled once. What Python must compute splits a join into *stages*: the first emits
the values of its slots, Python adds its own, and the next stage starts from those rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.join import functors
from tidelog.join.compiler import BATCH, Output, compile_join
from tidelog.join.program import JoinProgram, Overflowed
from tidelog.kernel import join_layout as k
from tidelog.kernel.marks import DEAD
from tidelog.plan.body import (
    Assign,
    AtomUse,
    Condition,
    Filter,
    FunctorCall,
    LoweredRule,
    Range,
    is_external,
    outputs,
)
from tidelog.plan.bounds import SlotBound, ordinal_range, slot_bounds
from tidelog.plan.order import Orderer, Stats, in_order
from tidelog.plan.staging import first_externals, needing_externals, reachable_slots, wanted_later
from tidelog.plan.steps import Leap, Scan
from tidelog.store.catalog import Catalog
from tidelog.store.domain import RAW_BITS, Domain, DomainOverflow
from tidelog.store.index import Index
from tidelog.store.layout import Layout
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run, Words, descriptors_of
from tidelog.store.sorting import sort_words
from tidelog.store.versions import Version
from tidelog.values.types import Type

LARGE_CHANGE = 4096
_FIRST_RESULTS = 1 << 10  # of a join that begins small
# The cost of another order of a relation, for each of its rows, in steps of a join. A bootstrap
# sorts and merges it in every round; an update only maintains it.
_PRICE = 0.5
_SMALL_CHANGE_PRICE = 0.02
_SMALL_CHANGE_SORTING = 2.0

HEAD = -1  # the driver of joins that look for the derivations of known rows


@dataclass(frozen=True)
class AtomReading:
    """What an atom reads: runs, and which of their rows (kernel/join_layout.py)."""

    runs: Sequence[Run]
    descriptors: NDArray[np.int64]
    """The same runs, as kernels see them."""
    limit: int
    uses_level: bool = False
    excludes_flagged: bool = False
    ignores_marks: bool = False


def reading(index: Index, version: Version) -> AtomReading:
    """Return the reading of an atom that sees one version of a relation."""
    if version.with_tail or index.tail is None:
        return AtomReading(index.all_runs(), index.descriptors(), version.limit)
    return AtomReading(index.runs, index.descriptors()[:-1], version.limit)


Reader = Callable[[int, AtomUse, tuple[int, ...]], AtomReading]
"""A function from an atom's place in the rule, the atom and its order of columns to its reading."""


@dataclass
class Instances:
    """A chunk of the output of a join: head rows, unsorted, and for levels when each fires."""

    rows: Words
    fires: NDArray[np.int64] | None


@dataclass
class _Stage:
    """One join, and what Python computes on its rows afterwards."""

    program: JoinProgram
    places: tuple[int, ...]
    """For each atom of the join its place in the rule, or -1 for the rows of the stage before."""
    slots: tuple[str, ...]
    """What it emits, if it is not the last stage."""
    externals: tuple[Condition, ...]


@dataclass(frozen=True)
class JoinPart:
    """A part of a join, which can run beside the others."""

    program: JoinProgram
    rows: Run | None = None
    """The rows to start from, in the primary order, if it has not read them yet."""


@dataclass(frozen=True)
class JoinStep:
    """A join of one stage, and what it reads."""

    program: JoinProgram
    driver: int
    """The atom of the plan that it starts from."""
    reads: Sequence[tuple[int, int, StoredRelation, tuple[int, ...]]]
    """For each other atom its number in the plan, its place in the rule, its relation and order."""


class RuleJoin:
    """One way to join a rule: from one driver, in one mode."""

    def __init__(
        self,
        catalog: Catalog,
        rule: LoweredRule,
        driver: int | None,
        mode: int,
        driver_rows: int,
        *,
        is_bounded: bool = True,
        heads: Sequence[AtomUse] = (),
    ) -> None:
        """Plan and compile the join; it writes the rows of all `heads` below each other."""
        self.rule = rule
        self._heads = heads or (rule.head,)
        self._is_bounded = is_bounded
        self._catalog = catalog
        self._mode = mode
        self._driver_rows = max(1, driver_rows)
        self._is_small = driver is not None and driver_rows < LARGE_CHANGE
        self.driver = driver
        self._atoms = list(rule.atoms)
        self._conditions = list(rule.conditions)
        if driver == HEAD:
            self._atoms.append(self._head_atom())
        elif driver is not None and self._atoms[driver].negated:
            # The changed rows of a negated atom are rows to start from, as those of other atoms.
            self._atoms[driver] = AtomUse(rule.atoms[driver].relation, rule.atoms[driver].args)
        self._driver_place = len(self._atoms) - 1 if driver == HEAD else driver
        self._domains = slot_domains(catalog, (*self._heads, *self._atoms))
        self._words = sum(catalog.relations[head.relation].words for head in self._heads)
        self._batch_domain = Domain()
        self._batch_domain.bits = RAW_BITS
        self.stages = list(self._make_stages())
        self.failed = False

    # --- compiling ---

    def _head_atom(self) -> AtomUse:
        """Return the head as an atom to start from; a repeated slot becomes an equality."""
        args: list[str | None] = []
        for slot in self.rule.head.args:
            if slot in args:
                again = f"%again{len(args)}"
                self._conditions.append(Assign(again, str(slot)))
                args.append(again)
            else:
                args.append(slot)
        return AtomUse(self.rule.head.relation, tuple(args))

    def _make_stages(self) -> Iterator[_Stage]:
        rule = self.rule
        conditions = self._conditions
        waiting = list(range(len(self._atoms)))
        known: set[str] = set(rule.constants)
        carried: tuple[str, ...] | None = None
        while True:
            later = needing_externals(conditions)
            have = known.union(carried or ())
            if later:
                now = [
                    i
                    for i in waiting
                    if i == self._driver_place or not (self._atoms[i].slots & later)
                ]
                reachable = reachable_slots(self._atoms, now, conditions, have)
                externals = first_externals(conditions, reachable)
                if not externals:  # only the deferred atoms can bind what they need
                    now = [i for i in waiting if not self._atoms[i].negated]
                    reachable = reachable_slots(self._atoms, now, conditions, have)
                    externals = first_externals(conditions, reachable)
                assert externals, f"no stage can compute what Python must: {rule.text}"
                now = [
                    i
                    for i in now
                    if not self._atoms[i].negated or self._atoms[i].slots <= reachable
                ]
            else:
                now, externals, reachable = waiting, (), set()
            plain = [
                c for c in conditions if not is_external(c) and (not later or c.inputs <= reachable)
            ]
            done = set(plain)
            conditions = [c for c in conditions if c not in done and c not in externals]
            waiting = [i for i in waiting if i not in now]
            bound = have | {s for i in now for s in self._atoms[i].slots}
            bound |= reachable.union(*map(outputs, plain))  # an equality binds either side
            if not later:
                yield self._stage(now, plain, known, carried, None, ())
                return
            wanted = wanted_later(self._atoms, waiting, conditions, externals, rule)
            slots = tuple(sorted((wanted & bound) - set(rule.constants)))
            yield self._stage(now, plain, known, carried, slots, externals)
            carried = tuple(sorted({*slots, *(s for c in externals for s in outputs(c))}))

    def _stage(
        self,
        places: list[int],
        conditions: list[Condition],
        known: set[str],
        carried: tuple[str, ...] | None,
        emitted: tuple[str, ...] | None,
        externals: tuple[Condition, ...],
    ) -> _Stage:
        rule = self.rule
        atoms = [self._atoms[i] for i in places]
        numbers = list(places)
        driver = numbers.index(self._driver_place) if self._driver_place in numbers else None
        if carried is not None:
            # The rows of the stage before, with their number in front: it leads to their levels.
            atoms.insert(0, AtomUse(BATCH, ("%row", *carried)))
            numbers.insert(0, -1)
            driver = 0
        kept = frozenset(slot for head in self._heads for slot in head.args if slot is not None)
        plan = Orderer(
            atoms,
            conditions,
            frozenset(known),
            driver,
            lambda i: self._stats(atoms[i], i == driver),
            lambda i: self._held(atoms[i]),
            _SMALL_CHANGE_PRICE if self._is_small else _PRICE,
            _SMALL_CHANGE_SORTING if self._is_small else 0.0,
            whole_driver=self._is_small and self._mode in (k.LOSE, k.SETTLE),  # maintain/walk.py
            bounds=self._bounds(conditions),
            kept=kept.union(emitted or ()),
        ).plan()
        layouts = [
            self._layout(atom, order) for atom, order in zip(plan.atoms, plan.orders, strict=True)
        ]
        domains = dict(self._domains)
        if carried is not None:
            for slot in carried:
                domains.setdefault(slot, self._batch_domain)
        words = 1
        places_out: tuple[tuple[str, int, int, int], ...] = ()
        if self._mode == k.COUNT and emitted is None:
            pass  # nothing is written
        elif emitted is None:
            named, words = [], 0
            for head in self._heads:
                layout = self._catalog.relations[head.relation].primary.layout
                named += head_places(head, layout, words)
                words += layout.words
            if carried is not None and self._mode != k.PLAIN:
                named.append(("%row", words, 0, -1))
                words += 1
            places_out = tuple(named)
        else:
            extra = ("%row",) if carried is not None and self._mode != k.PLAIN else ()
            places_out = tuple((slot, i, 0, -1) for i, slot in enumerate((*emitted, *extra)))
            words = len(places_out)
        staged = carried is not None or emitted is not None
        mode = k.RAW if staged and self._mode != k.PLAIN else self._mode
        program = compile_join(
            plan, layouts, domains, constant_codes(self._catalog, rule, domains),
            Output(max(1, words), places_out), mode,
        )  # fmt: skip
        return _Stage(program, tuple(numbers), emitted or (), externals)

    def _bounds(self, conditions: Sequence[Condition]) -> Sequence[SlotBound]:
        if not self._is_bounded:
            return ()
        return slot_bounds(conditions, self.rule.constants, self._is_safe)

    def _is_safe(self, slot: str, number: int, type_: Type) -> bool:
        """Return whether no value of a slot, plus a number, leaves the range of a type."""
        return is_safe_sum(self._domains.get(slot), number, type_)

    def _layout(self, atom: AtomUse, order: tuple[int, ...]) -> Layout:
        if atom.relation == BATCH:
            return Layout(order, [self._batch_domain] * len(atom.args))
        return Layout(order, self._catalog.domains(atom.relation))

    def _stats(self, atom: AtomUse, is_driver: bool) -> Stats:
        if atom.relation == BATCH:
            return Stats(1000.0, (1000.0,) * len(atom.args))
        stats = self._catalog.stats(atom.relation)
        if is_driver:
            rows = float(self._driver_rows)
            return Stats(rows, tuple(min(rows, d) for d in stats.distinct))
        return stats

    def _held(self, atom: AtomUse) -> Sequence[tuple[int, ...]]:
        if atom.relation == BATCH:
            return ()
        return tuple(self._catalog.relations[atom.relation].indexes)

    # --- running ---

    def prepare(self) -> None:
        """Build the orders that the join reads."""
        for stage in self.stages:
            plan = stage.program.plan
            for i, place in enumerate(stage.places):
                if place not in (-1, self._driver_place):
                    self._catalog.relations[plan.atoms[i].relation].index(
                        plan.orders[i]
                    ).descriptors()

    @property
    def can_be_walked(self) -> bool:
        """Whether the kernel can run the join from rows in any order, without calling Python."""
        return len(self.stages) == 1 and self.stages[0].program.scans_at_once(self.walked_atom)

    @property
    def walked_atom(self) -> int:
        """The driver's place in the plan."""
        assert self._driver_place is not None
        return self.stages[0].places.index(self._driver_place)

    def opened(self, reader: Reader) -> JoinProgram | None:
        """Return the join, with all atoms but the driver's read.

        Returns None if an atom has no rows, so that the join has no results.
        """
        stage = self.stages[0]
        stage.program.refresh(self._catalog.record_address)
        if not self._read(stage, reader, [], None, but=self._driver_place):
            return None
        return stage.program

    def bias(self, slot: str) -> int:
        """Return what the code of a slot is less than its ordinal."""
        domain = self._domains.get(slot)
        return 0 if domain is None else domain.bias

    def as_step(self) -> JoinStep | None:
        """Return the join for short epochs (kernel/epoch.py); None if Python takes part in it."""
        if len(self.stages) > 1:
            return None
        stage, relations = self.stages[0], self._catalog.relations
        plan = stage.program.plan
        reads = [
            (atom, place, relations[plan.atoms[atom].relation], plan.orders[atom])
            for atom, place in enumerate(stage.places)
            if place != self._driver_place
        ]
        return JoinStep(stage.program, self.walked_atom, reads)

    @property
    def writes_sorted_rows(self) -> bool:
        """Whether slots are bound in the order in which the head has them."""
        plan = self.stages[0].program.plan
        if len(self.stages) > 1:
            return False
        bound: list[str | None] = []
        for step in plan.steps:
            if isinstance(step, Leap):
                bound.append(step.slot)
            elif isinstance(step, Scan):
                columns = in_order(step.columns, plan.orders[step.atom])
                bound += [plan.atoms[step.atom].args[column] for column in columns]
        bound = [slot for slot in dict.fromkeys(bound) if slot not in self.rule.constants]
        head = [slot for slot in dict.fromkeys(self.rule.head.args) if slot in bound]
        return head == bound

    def count(self, reader: Reader) -> int | None:
        """Return the number of instantiations; None if Python takes part in the join.

        Rows of the last atom that lie between two bounds are counted, not read.
        """
        stage = self.stages[0]
        if len(self.stages) > 1:
            return None
        self.failed = False
        if not self._read(stage, reader, None, None):
            return 0
        return sum(n for _, n in self._run_stage(stage, 0))

    def overflow(self, error: Overflowed) -> DomainOverflow:
        """Return the error that asks for a wider domain."""
        domain = self._domains[error.slot]
        return DomainOverflow(domain, error.code + domain.bias)

    def run(
        self,
        reader: Reader,
        driver: Sequence[Run] | None,
        settle_level: int = 0,
        *,
        begins_small: bool = False,
    ) -> Iterator[Instances]:
        """Run the join; `driver` are the rows to start from, in the primary order.

        If it `begins_small`, the first results come as soon as there are some.
        """
        self.failed = False
        words = self._words
        if len(self.stages) == 1:
            stage = self.stages[0]
            if not self._read(stage, reader, driver, None):
                return
            for out, n in self._run_stage(stage, settle_level, begins_small=begins_small):
                rows = np.ascontiguousarray(out[:words, :n])
                yield Instances(rows, out[words, :n].copy() if self._mode != k.PLAIN else None)
            return
        yield from self._run_from(0, reader, driver, None, None, settle_level)

    def in_parts(
        self, reader: Reader, driver: Sequence[Run] | None, count: int
    ) -> list[JoinPart] | None:
        """Return parts of the join, opened, to be run at the same time.

        Returns None if the join cannot be cut, and no parts if it has no results. The rows that are
        read must stay as they are until `close`.
        """
        if len(self.stages) > 1 or self._mode != k.PLAIN:
            return None
        self.failed = False
        stage = self.stages[0]
        program = stage.program
        slices = self._driver_slices(driver, count)
        if len(slices) > 1:
            if not self._read(stage, reader, [], None, but=self._driver_place):
                return []
            program.refresh(self._catalog.record_address)
            return [JoinPart(program.copy(), rows) for rows in slices]
        if not self._read(stage, reader, driver, None):
            return []
        program.refresh(self._catalog.record_address)
        # What a part of a step leads to is not known: with more of them, workers end together.
        return [JoinPart(part) for part in program.parts(2 * count)] or None

    def _driver_slices(self, driver: Sequence[Run] | None, count: int) -> list[Run]:
        """Return the driver in parts, if these lead to different heads; otherwise nothing.

        That is so if both begin with the same variable. Then the parts have no rows in common.
        """
        place, head = self._driver_place, self.rule.head.args[0]
        if driver is None or len(driver) != 1 or place is None or self.driver == HEAD:
            return []
        atom, words = self._atoms[place], driver[0].words
        if atom.args[0] != head or head in self.rule.constants:
            return []
        layout = self._catalog.relations[atom.relation].primary.layout
        shift = int(layout.by_column[0][1])
        first, n = words[0], words.shape[1]
        keys = [(first[n * number // count] >> shift) << shift for number in range(1, count)]
        cuts = sorted({0, *np.searchsorted(first, keys).tolist(), n})
        return [
            Run(np.ascontiguousarray(words[:, start:stop]))
            for start, stop in itertools.pairwise(cuts)
        ]

    def begin(self, part: JoinPart) -> None:
        """Read the rows that a part starts from, and put it at its beginning."""
        if part.rows is not None:
            assert self._driver_place is not None
            atom = self.walked_atom
            relation, order = part.program.plan.atoms[atom].relation, part.program.plan.orders[atom]
            runs = [self._in_order(part.rows, relation, order)]
            part.program.read(atom, descriptors_of(runs), runs, DEAD)
        part.program.begin()

    def close(self, parts: Sequence[JoinPart]) -> None:
        """Note what the parts have met, and drop the references to what was read."""
        self.failed = self.failed or any(part.program.failed for part in parts)
        self.stages[0].program.release()

    def _read(
        self,
        stage: _Stage,
        reader: Reader,
        driver: Sequence[Run] | None,
        batch: Run | None,
        but: int | None = None,
    ) -> bool:
        """Set what each atom but one reads; return False if the join has no results."""
        program = stage.program
        for i, place in enumerate(stage.places):
            if place == but:
                continue
            atom, order = program.plan.atoms[i], program.plan.orders[i]
            if place == -1:
                assert batch is not None
                rows = _in_column_order(batch, order)
                reads = AtomReading([rows], rows.descriptors(), 0)
            elif place == self._driver_place and driver is not None:
                runs = [self._in_order(run, atom.relation, order) for run in driver]
                levels = self._mode != k.PLAIN and self.driver != HEAD
                reads = AtomReading(runs, descriptors_of(runs), DEAD, uses_level=levels)
            else:
                reads = reader(place, atom, order)
            readable = program.read(
                i, reads.descriptors, reads.runs, reads.limit, reads.uses_level,
                reads.excludes_flagged, reads.ignores_marks,
            )  # fmt: skip
            if not readable and not atom.negated:
                return False
        return True

    def _in_order(self, run: Run, relation: str, order: tuple[int, ...]) -> Run:
        stored = self._catalog.relations[relation]
        return stored.arranged(run, order)

    def _run_stage(
        self, stage: _Stage, settle_level: int, *, begins_small: bool = False
    ) -> Iterator[tuple[Words, int]]:
        program = stage.program
        out = self._catalog.buffer(program.out_height)
        program.refresh(self._catalog.record_address)
        program.begin(settle_level)
        try:
            done = False
            if begins_small:
                few = np.empty((program.out_height, _FIRST_RESULTS), np.int64)
                n, done = program.advance(few)
                if n:
                    yield few, n
            while not done:
                n, done = program.advance(out)
                if n:
                    yield out, n
                elif not done:  # no results for a long time
                    self._catalog.meter.found(0)
        except Overflowed as error:
            raise self.overflow(error) from None
        finally:
            program.release()
            self._catalog.give_back(out)
        self.failed = self.failed or program.failed

    def _run_from(
        self,
        number: int,
        reader: Reader,
        driver: Sequence[Run] | None,
        batch: NDArray[np.int64] | None,
        levels: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
        settle_level: int,
    ) -> Iterator[Instances]:
        """Run the stages from `number` on; `levels` are the largest of the rows so far."""
        stage = self.stages[number]
        run = None if batch is None else Run(np.ascontiguousarray(batch))
        if not self._read(stage, reader, driver, run):
            return
        last = number == len(self.stages) - 1
        height = stage.program.out_height
        for out, n in self._run_stage(stage, settle_level):
            emitted = out[:height, :n].copy()
            joined = levels
            if self._mode != k.PLAIN:
                rest, flagged = emitted[-2], emitted[-1]
                emitted = emitted[:-2]
                if levels is not None:
                    row, emitted = emitted[-1], emitted[:-1]
                    rest = np.maximum(rest, levels[0][row])
                    flagged = np.maximum(flagged, levels[1][row])
                joined = (rest, flagged)
            if last:
                yield from self._finish(np.ascontiguousarray(emitted), joined, settle_level)
            else:
                rows, joined = self._externals(stage, emitted, joined)
                if rows.shape[1]:
                    numbered = np.vstack([np.arange(rows.shape[1]), rows])
                    yield from self._run_from(
                        number + 1, reader, driver, numbered, joined, settle_level
                    )

    def _finish(
        self,
        rows: Words,
        levels: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
        settle_level: int,
    ) -> Iterator[Instances]:
        if levels is None:
            yield Instances(rows, None)
            return
        rest, flagged = levels
        if self._mode == k.SETTLE:
            counts = rest < flagged
            fires = 1 + np.maximum(rest, settle_level)
            yield Instances(np.ascontiguousarray(rows[:, counts]), fires[counts])
        else:
            yield Instances(rows, 1 + np.maximum(rest, flagged))

    def _externals(
        self,
        stage: _Stage,
        emitted: NDArray[np.int64],
        levels: tuple[NDArray[np.int64], NDArray[np.int64]] | None,
    ) -> tuple[NDArray[np.int64], tuple[NDArray[np.int64], NDArray[np.int64]] | None]:
        """Evaluate the external conditions; return the rows of the next stage, slots by name."""
        n = emitted.shape[1]
        codec = self._catalog.codec
        # A stage that emits no slots still emits rows, without values.
        columns = emitted[: len(stage.slots)]
        values: dict[str, NDArray[np.int64]] = dict(zip(stage.slots, columns, strict=True))
        index = np.arange(n)

        def ordinal(slot: str) -> NDArray[np.int64]:
            constant = self.rule.constants.get(slot)
            if constant is not None:
                return np.full(len(index), codec.encoder(constant.type)(constant.value), np.int64)
            domain = self._domains.get(slot)
            return values[slot] + (domain.bias if domain is not None else 0)

        def keep(mask: NDArray[np.bool_]) -> None:
            nonlocal index
            if not mask.all():
                index = index[mask]
                for slot in values:
                    values[slot] = values[slot][mask]

        for condition in stage.externals:
            match condition:
                case Assign(into, FunctorCall(op, args, types, type_)):
                    result, failed, _ = functors.apply(
                        op, [ordinal(a) for a in args], types, type_, codec, rows=len(index)
                    )
                    domain = self._domains.get(into)
                    code = result - (domain.bias if domain is not None else 0)
                    if into in values:
                        good = ~failed & (values[into] == code)
                    else:
                        values[into] = code
                        good = ~failed
                    self.failed = self.failed or bool(failed.any())
                    keep(good)
                case Filter(op, args, types, negated):
                    holds, failed, _ = functors.test(op, [ordinal(a) for a in args], types, codec)
                    self.failed = self.failed or bool(failed.any())
                    keep((holds != negated) & ~failed)
                case Range(into, start, stop, step, type_):
                    row, result, failed, _ = functors.expand_range(
                        ordinal(start), ordinal(stop), None if step is None else ordinal(step),
                        type_, codec,
                    )  # fmt: skip
                    self.failed = self.failed or bool(np.any(failed))
                    index = index[row]
                    for slot in values:
                        values[slot] = values[slot][row]
                    domain = self._domains.get(into)
                    values[into] = result - (domain.bias if domain is not None else 0)
                case _:
                    raise AssertionError(condition)
        rows = np.array([values[slot] for slot in sorted(values)], np.int64).reshape(
            len(values), len(index)
        )
        if levels is not None:
            levels = (levels[0][index], levels[1][index])
        return rows, levels


def is_safe_sum(domain: Domain | None, number: int, type_: Type) -> bool:
    """Return whether no value of a domain, plus a number, leaves the range of a type."""
    if domain is None or domain.is_raw:
        return False
    low, high = ordinal_range(type_) or (-(2**63), 2**63 - 1)
    largest = domain.bias + (1 << domain.bits) - 1
    return low <= domain.bias + number and largest + number <= high


def slot_domains(catalog: Catalog, atoms: Iterable[AtomUse]) -> dict[str, Domain]:
    """Return the domains of the slots of atoms."""
    domains: dict[str, Domain] = {}
    for atom in atoms:
        for slot, domain in zip(atom.args, catalog.domains(atom.relation), strict=True):
            if slot is not None:
                domains[slot] = domain
    return domains


def constant_codes(
    catalog: Catalog, rule: LoweredRule, domains: Mapping[str, Domain]
) -> dict[str, int]:
    """Return the codes of the constants of a rule; ordinals where a slot has no domain."""
    codes = {}
    for slot, constant in rule.constants.items():
        ordinal = catalog.codec.encoder(constant.type)(constant.value)
        domain = domains.get(slot)
        codes[slot] = ordinal if domain is None else domain.code(ordinal)
    return codes


def head_places(
    head: AtomUse, layout: Layout, first_word: int = 0
) -> list[tuple[str, int, int, int]]:
    """Return for each column of a head its slot, and where it is in the output."""
    places = []
    for column, name in enumerate(head.args):
        word, shift, mask = (int(v) for v in layout.by_column[column])
        assert name is not None
        places.append((name, first_word + word, shift, mask))
    return places


def _in_column_order(batch: Run, order: tuple[int, ...]) -> Run:
    """Return the rows of the stage before, sorted by the columns in the order of the plan."""
    if order == tuple(range(len(order))):
        return batch
    return Run(sort_words(np.ascontiguousarray(batch.words[list(order)])))
