"""Whether a computation that failed inside a join is an error.

The rule (docs/decisions/0001): a condition that cannot be computed is an error exactly when the
positive atoms match and no other condition is false; conditions on a value that could not be
computed are left out. Joins drop such rows and go on. Only afterwards the rule is evaluated here
once more, row by row: its positive atoms are joined, and its conditions are tried in turn.

A rule can also derive rows where it fails, for other rules to judge (`OnFailure`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import EvaluationError
from tidelog.join import functors
from tidelog.join.compiler import Output, compile_join
from tidelog.join.joins import HEAD, Reader
from tidelog.kernel import join_layout as k
from tidelog.kernel.marks import DEAD
from tidelog.logic.program import Comparison
from tidelog.plan.body import (
    Assign,
    AtomUse,
    Check,
    Condition,
    Filter,
    FunctorCall,
    LoweredRule,
    Range,
    Unpack,
)
from tidelog.plan.order import Orderer, Stats
from tidelog.store.catalog import Catalog
from tidelog.store.layout import Layout
from tidelog.store.run import Run, descriptors_of


def check_failures(
    catalog: Catalog,
    rule: LoweredRule,
    driver: int | None,
    reader: Reader,
    rows: Sequence[Run] | None,
) -> None:
    """Raise EvaluationError if some rows of the rule fail, and nothing excuses them."""
    slots, bindings = match_atoms(catalog, rule, driver, reader, rows)
    attempt = Attempt(catalog, rule, reader)
    for binding in bindings.T.tolist():
        attempt.check(dict(zip(slots, binding, strict=True)))


def failing_heads(
    catalog: Catalog,
    rule: LoweredRule,
    driver: int | None,
    reader: Reader,
    rows: Sequence[Run] | None,
) -> NDArray[np.int64]:
    """Return the heads where a condition fails and none is false, as ordinals.

    A head is returned once for each failure, so that they can be counted.
    """
    slots, bindings = match_atoms(catalog, rule, driver, reader, rows)
    attempt = Attempt(catalog, rule, reader)
    changed: AtomUse | None = None
    if driver is not None and driver != HEAD and rule.atoms[driver].negated:
        changed = rule.atoms[driver]
    positive = {slot for _, atom in rule.positive for slot in atom.slots}
    found = []
    for binding in bindings.T.tolist():
        values = dict(zip(slots, binding, strict=True))
        # The slots of a negated atom that has changed are compared with what the rule computes. If
        # it cannot compute them, then the atom does not count, and its change does not either.
        start = {slot: value for slot, value in values.items() if slot in positive}
        for tried in attempt.outcomes(start, but=driver):
            if tried.failures and (
                changed is None
                or all(tried.known.get(s, UNCOMPUTED) == values.get(s) for s in changed.slots)
            ):
                head = [tried.known[slot] for slot in rule.head.args if slot is not None]
                assert UNCOMPUTED not in head, f"the head depends on what fails: {rule.text}"
                found.append(head)
    return np.array(found, np.int64).reshape(-1, len(rule.head.args)).T


def match_atoms(
    catalog: Catalog,
    rule: LoweredRule,
    driver: int | None,
    reader: Reader,
    rows: Sequence[Run] | None,
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the codes of the slots that the positive atoms bind, in all their matches."""
    places = [i for i, _ in rule.positive]
    atoms = [rule.atoms[i] for i in places]
    if driver == HEAD:
        places, atoms = [*places, HEAD], [*atoms, rule.head]
    elif driver is not None and rule.atoms[driver].negated:
        # The driver are changed rows of a negated atom: they bind as a positive atom does.
        places = [*places, driver]
        atoms = [*atoms, AtomUse(rule.atoms[driver].relation, rule.atoms[driver].args)]
    slots = sorted({slot for atom in atoms for slot in atom.slots} - set(rule.constants))
    if not atoms:
        return slots, np.zeros((0, 1), np.int64)
    start = places.index(driver) if driver in places and driver is not None else None

    def stats(i: int) -> Stats:
        return catalog.stats(atoms[i].relation)

    plan = Orderer(atoms, [], frozenset(rule.constants), start, stats).plan()
    layouts = [
        Layout(order, catalog.domains(atom.relation))
        for atom, order in zip(plan.atoms, plan.orders, strict=True)
    ]
    domains = {}
    for atom in atoms:
        for slot, domain in zip(atom.args, catalog.domains(atom.relation), strict=True):
            if slot is not None:
                domains[slot] = domain
    constants = {}
    for slot, constant in rule.constants.items():
        ordinal = catalog.codec.encoder(constant.type)(constant.value)
        constants[slot] = domains[slot].code(ordinal) if slot in domains else ordinal
    output = Output(max(1, len(slots)), tuple((slot, i, 0, -1) for i, slot in enumerate(slots)))
    program = compile_join(plan, layouts, domains, constants, output, k.PLAIN)
    for i, place in enumerate(places):
        atom, order = plan.atoms[i], plan.orders[i]
        if place == driver and rows is not None:
            stored = catalog.relations[atom.relation]
            runs = [stored.arranged(run, order) for run in rows]
            program.read(i, descriptors_of(runs), runs, DEAD)
        else:
            reading = reader(place, atom, order)
            program.read(i, reading.descriptors, reading.runs, reading.limit)
    out = catalog.buffer(program.out_height)
    try:
        chunks = [out[: len(slots), :n].copy() for n in program.run(out)]
    finally:
        catalog.give_back(out)
    found = np.concatenate(chunks, axis=1)
    for i, slot in enumerate(slots):
        found[i] += domains[slot].bias
    return slots, found


class _Uncomputed:
    """The value of a slot that could not be computed."""


UNCOMPUTED = _Uncomputed()


class _FalseError(Exception):
    """A condition does not hold."""


@dataclass(frozen=True)
class Tried:
    """What the conditions of a rule give on a row, none of which is false."""

    known: dict[str, Any]
    """The ordinals of the slots; UNCOMPUTED where a computation failed."""
    failures: list[str]


class Attempt:
    """Tries the conditions of a rule on one row, on ordinals."""

    def __init__(self, catalog: Catalog, rule: LoweredRule, reader: Reader) -> None:
        self._catalog = catalog
        self._rule = rule
        self._reader = reader
        self._constants = {
            slot: catalog.codec.encoder(c.type)(c.value) for slot, c in rule.constants.items()
        }

    def holds(self, values: dict[str, Any]) -> bool:
        """Return whether the row satisfies all conditions; failures count as false."""
        try:
            return self.check(values)
        except EvaluationError:
            return False

    def check(self, values: dict[str, Any]) -> bool:
        """Return whether the row satisfies all conditions.

        Raises EvaluationError if one of them fails and no other is false.
        """
        holds = False
        for tried in self.outcomes(values):
            holds = True
            if tried.failures:
                raise EvaluationError(
                    tried.failures[0], self._rule.text, self._rule.span, self.shown(values)
                )
        return holds

    def outcomes(self, values: dict[str, Any], but: int | None = None) -> Iterator[Tried]:
        """Try all conditions on a row, and yield what they give unless one of them is false.

        There is one outcome, or with ranges one for each of their numbers. A negated atom can be
        left out: that at the place `but`.
        """
        known = {**self._constants, **values}
        atoms = frozenset(values)
        for tried in self._outcomes(list(self._rule.conditions), known, atoms, []):
            if not any(
                atom.negated and place != but and self._present(place, atom, tried.known)
                for place, atom in enumerate(self._rule.atoms)
            ):
                yield tried

    def _outcomes(
        self,
        waiting: list[Condition],
        known: dict[str, Any],
        atoms: frozenset[str],
        failures: list[str],
    ) -> Iterator[Tried]:
        """Try the conditions that are waiting, each as soon as its inputs are known.

        Ranges come last, because the others may say that none of their numbers leads to a row.
        """
        while True:
            ready = [c for c in waiting if all(slot in known for slot in c.inputs)]
            if not ready:
                yield Tried(known, failures)
                return
            condition = next((c for c in ready if not isinstance(c, Range)), ready[0])
            waiting.remove(condition)
            if not isinstance(condition, Range):
                try:
                    self._try(condition, known, atoms, failures)
                except _FalseError:
                    return
                continue
            numbers = self._numbers(condition, known, failures)
            if numbers is None:
                self._leave_out(condition, known, atoms)
                continue
            for number in numbers:
                into = {**known, condition.into: number}
                yield from self._outcomes([*waiting], into, atoms, [*failures])
            return

    def _numbers(
        self, condition: Range, known: dict[str, Any], failures: list[str]
    ) -> list[int] | None:
        """Return the numbers of a range that can lead to a row; None if it has no value."""
        inputs = (condition.start, condition.stop, condition.step)
        bounds = [known[slot] for slot in inputs if slot is not None]
        if any(value is UNCOMPUTED for value in bounds):
            return None
        start, stop, *step = [np.array([value], np.int64) for value in bounds]
        _, numbers, failed, reasons = functors.expand_range(
            start, stop, step[0] if step else None, condition.type, self._catalog.codec
        )
        if failed[0]:
            failures.append(reasons(0))
            return None
        for held in self._equal_to(condition.into, known):
            numbers = numbers[numbers == held]
        return list(map(int, numbers))

    def shown(self, values: dict[str, Any]) -> dict[str, object]:
        """Return the values of the rule's own variables, for messages."""
        decode = self._catalog.codec.decoder
        return {
            slot: decode(self._rule.types[slot])(value)
            for slot, value in values.items()
            if not slot.startswith(("%", "$", "#", "?"))
        }

    def _try(
        self,
        condition: Condition,
        known: dict[str, Any],
        atoms: frozenset[str],
        failures: list[str],
    ) -> None:
        inputs = {slot: known[slot] for slot in condition.inputs}
        if any(value is UNCOMPUTED for value in inputs.values()):
            self._leave_out(condition, known, atoms)
            return
        match condition:
            case Assign(into, str() as value):
                self._bind(into, known[value], known)
            case Assign(into, FunctorCall(op, args, types, type_)):
                columns = [np.array([known[a]], np.int64) for a in args]
                result, failed, reasons = functors.apply(
                    op, columns, types, type_, self._catalog.codec
                )
                if failed[0]:
                    failures.append(reasons(0))
                    self._leave_out(condition, known, atoms)
                else:
                    self._bind(into, int(result[0]), known)
            case Check(op, left, right):
                if not _HOLDS[op](known[left], known[right]):
                    raise _FalseError
            case Unpack(record, into, type_):
                item = self._catalog.codec.dictionary(type_).items[known[record]]
                if item is None:
                    raise _FalseError
                for slot, value in zip(into, item, strict=True):
                    self._bind(slot, value, known)
            case Filter(op, args, types, negated):
                columns = [np.array([known[a]], np.int64) for a in args]
                holds, failed, reasons = functors.test(op, columns, types, self._catalog.codec)
                if failed[0]:
                    failures.append(reasons(0))
                elif bool(holds[0]) == negated:
                    raise _FalseError
            case Range():
                raise AssertionError("a range has many outcomes")

    def _equal_to(self, slot: str, known: dict[str, Any]) -> Iterator[Any]:
        """Yield the known values that must equal a slot."""
        for condition in self._rule.conditions:
            match condition:
                case Assign(other, value) if value == slot:
                    pass
                case Check(Comparison.EQ, left, right) if slot in (left, right):
                    other = right if left == slot else left
                case _:
                    continue
            held = known.get(other, UNCOMPUTED)
            if held is not UNCOMPUTED:
                yield held

    def _leave_out(
        self, condition: Condition, known: dict[str, Any], atoms: frozenset[str]
    ) -> None:
        match condition:
            case Assign(into) | Range(into):
                if into not in atoms:
                    known.setdefault(into, UNCOMPUTED)
            case Unpack(_, into):
                for slot in into:
                    known.setdefault(slot, UNCOMPUTED)

    def _bind(self, slot: str, value: Any, known: dict[str, Any]) -> None:
        held = known.setdefault(slot, value)
        if held is not UNCOMPUTED and held != value:
            raise _FalseError

    def _present(self, place: int, atom: AtomUse, known: dict[str, Any]) -> bool:
        ordinals = [known.get(slot, UNCOMPUTED) for slot in atom.args if slot is not None]
        if any(value is UNCOMPUTED for value in ordinals):
            return False
        relation = self._catalog.relations[atom.relation]
        codes = [
            value - domain.bias for value, domain in zip(ordinals, relation.domains, strict=True)
        ]
        if any(code & ~d.mask for code, d in zip(codes, relation.domains, strict=True)):
            return False
        row = relation.pack(np.array(codes, np.int64)[:, None])
        reading = self._reader(place, atom, relation.primary.layout.order)
        return any(run.locate(row, reading.limit)[0] >= 0 for run in reading.runs if len(run))


_HOLDS = {
    Comparison.EQ: lambda a, b: a == b,
    Comparison.NE: lambda a, b: a != b,
    Comparison.LT: lambda a, b: a < b,
    Comparison.LE: lambda a, b: a <= b,
    Comparison.GT: lambda a, b: a > b,
    Comparison.GE: lambda a, b: a >= b,
}
