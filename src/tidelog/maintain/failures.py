"""What to do when a computation failed inside a join.

The rule (docs/decisions/0001): a condition that cannot be computed is an error exactly when the
positive atoms match and no other condition is false; conditions on a value that could not be
computed are left out. Joins drop such rows and go on; afterwards, and only then, the rule is looked
at here once more, row by row: its positive atoms are joined, and its conditions are tried in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import EvaluationError
from tidelog.kernel import join as k
from tidelog.kernel.program import JoinProgram, Output
from tidelog.logic.program import Comparison
from tidelog.maintain import functors
from tidelog.maintain.catalog import Catalog
from tidelog.plan.body import (
    Apply,
    Assign,
    AtomUse,
    Check,
    Condition,
    Count,
    Filter,
    Rule,
    Unpack,
)
from tidelog.plan.order import Orderer, Stats
from tidelog.store.layout import Layout
from tidelog.store.run import Run, table_of

if TYPE_CHECKING:
    from tidelog.maintain.joins import Reader

HEAD = -1


def check_failures(
    catalog: Catalog, rule: Rule, driver: int | None, reader: Reader, rows: Sequence[Run] | None
) -> None:
    """Raise EvaluationError if some rows of the rule fail, and nothing excuses them."""
    slots, bindings = match_atoms(catalog, rule, driver, reader, rows)
    attempt = Attempt(catalog, rule, reader)
    for binding in bindings.T.tolist():
        attempt.check(dict(zip(slots, binding, strict=True)))


def match_atoms(
    catalog: Catalog, rule: Rule, driver: int | None, reader: Reader, rows: Sequence[Run] | None
) -> tuple[list[str], NDArray[np.int64]]:
    """Return the codes of the slots that the positive atoms bind, in all their matches."""
    places = [i for i, _ in rule.positive]
    atoms = [rule.atoms[i] for i in places]
    if driver == HEAD:
        places, atoms = [*places, HEAD], [*atoms, rule.head]
    elif driver is not None and rule.atoms[driver].negated:
        # The driver is what came or went under the negation: it binds as a positive atom does.
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
    program = JoinProgram(plan, layouts, domains, rule.types, constants, output, k.PLAIN)
    for i, place in enumerate(places):
        atom, order = plan.atoms[i], plan.orders[i]
        if place == driver and rows is not None:
            stored = catalog.relations[atom.relation]
            runs = [stored.arranged(run, order) for run in rows]
            program.read(i, table_of(runs), runs, k.DEAD)
        else:
            reading = reader(place, atom, order)
            program.read(i, reading.table, reading.runs, reading.limit)
    out = catalog.buffer(program.out_height)
    try:
        chunks = [out[: len(slots), :n].copy() for n in program.run(out)]
    finally:
        catalog.give_back(out)
    found = np.concatenate(chunks, axis=1)
    for i, slot in enumerate(slots):
        found[i] += domains[slot].bias
    return slots, found


class _Unknown:
    """The value of a slot that could not be computed."""


UNKNOWN = _Unknown()


class _FalseError(Exception):
    """A condition does not hold."""


class Attempt:
    """Tries the conditions of a rule on one row, on ordinals."""

    def __init__(self, catalog: Catalog, rule: Rule, reader: Reader) -> None:
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
        known: dict[str, Any] = {**self._constants, **values}
        bound_by_atoms = frozenset(values)
        failures: list[str] = []
        waiting = list(self._rule.conditions)
        try:
            moved = True
            while moved:
                moved = False
                for condition in list(waiting):
                    if all(slot in known for slot in condition.inputs):
                        waiting.remove(condition)
                        self._try(condition, known, bound_by_atoms, failures)
                        moved = True
            for place, atom in enumerate(self._rule.atoms):
                if atom.negated and self._present(place, atom, known):
                    return False
        except _FalseError:
            return False
        if failures:
            raise EvaluationError(failures[0], self._rule.text, self._rule.span, self.shown(values))
        return True

    def shown(self, values: dict[str, Any]) -> dict[str, object]:
        """Return the values of the rule's own variables, for messages."""
        decode = self._catalog.codec.decoder
        return {
            slot: decode(self._rule.types[slot])(value)
            for slot, value in values.items()
            if not slot.startswith(("%", "$", "#"))
        }

    def _try(
        self,
        condition: Condition,
        known: dict[str, Any],
        atoms: frozenset[str],
        failures: list[str],
    ) -> None:
        inputs = {slot: known[slot] for slot in condition.inputs}
        if any(value is UNKNOWN for value in inputs.values()):
            self._leave_out(condition, known, atoms)
            return
        match condition:
            case Assign(into, str() as value):
                self._bind(into, known[value], known)
            case Assign(into, Apply(op, args, types, type_)):
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
                item = self._catalog.codec.table(type_).items[known[record]]
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
            case Count(_, start, stop, step, type_):
                # Each number of the range is a row of its own; which one does not matter here.
                bounds = [
                    np.array([known[s]], np.int64) for s in (start, stop, step) if s is not None
                ]
                _, numbers, failed, reasons = functors.expand_range(
                    bounds[0], bounds[1], bounds[2] if step is not None else None, type_,
                    self._catalog.codec,
                )  # fmt: skip
                if failed[0]:
                    failures.append(reasons(0))
                elif not len(numbers):
                    raise _FalseError
                self._leave_out(condition, known, atoms)

    def _leave_out(
        self, condition: Condition, known: dict[str, Any], atoms: frozenset[str]
    ) -> None:
        match condition:
            case Assign(into) | Count(into):
                if into not in atoms:
                    known.setdefault(into, UNKNOWN)
            case Unpack(_, into):
                for slot in into:
                    known.setdefault(slot, UNKNOWN)

    def _bind(self, slot: str, value: Any, known: dict[str, Any]) -> None:
        held = known.get(slot)
        if held is None or held is UNKNOWN:
            known[slot] = value
        elif held != value:
            raise _FalseError

    def _present(self, place: int, atom: AtomUse, known: dict[str, Any]) -> bool:
        ordinals = [known.get(slot, UNKNOWN) for slot in atom.args if slot is not None]
        if any(value is UNKNOWN for value in ordinals):
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
