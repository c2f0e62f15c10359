"""A plan in words: "from edge(x, y): look up reach(y, z) by y"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidelog.logic.functors import INFIX
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
from tidelog.plan.steps import Absent, Bound, Compute, Iterate, Leap, Plan, Scan, Seek, Step
from tidelog.values.text import format_value
from tidelog.values.types import Field, Kind, Type

_SIGNS = {signature.op: sign for sign, signature in INFIX.items()}


class RuleWords:
    """Describes one rule in words: its slots, atoms and conditions."""

    def __init__(
        self,
        rule: LoweredRule,
        relations: Mapping[str, tuple[Type, ...]],
        records: Mapping[str, tuple[Field, ...]],
    ) -> None:
        self._rule, self._relations, self._records = rule, relations, records
        # Intermediate values have no names. They are shown as expressions, or as the variable
        # that they are equal to.
        self._made: dict[str, str | FunctorCall] = {}
        self._named: dict[str, str] = {}
        for condition in rule.conditions:
            match condition:
                case Assign(into, value) if into[0] in "%$":
                    self._made[into] = value
                case Assign(into, str(value)) if value[0] == "%":
                    self._named.setdefault(value, into)

    def rule(self) -> str:
        """Return the lowered rule as text; it may have parts that are not in the program."""
        body = [self.atom(a) for a in self._rule.atoms]
        body += [self.condition(c) for c in self._rule.conditions if not self._is_silent(c)]
        return f"{self.atom(self._rule.head)} :- {', '.join(body)}."

    def atom(self, atom: AtomUse) -> str:
        """Return an atom. One of a relation without columns has a slot all the same."""
        args = [self._slot(arg) for arg in atom.args if self._relations.get(atom.relation, (1,))]
        return f"{'!' * atom.negated}{atom.relation}({', '.join(args)})"

    def plan(self, plan: Plan, batch: str) -> str:
        """Return the steps of a plan; rows of the relation `batch` are those found so far."""
        start, steps = "", plan.steps
        if plan.driver is not None:
            driver = plan.atoms[plan.driver]
            start = "with these" if driver.relation == batch else f"from {self.atom(driver)}"
        said = "; ".join(self._steps(plan, steps))
        if start == "with these" and not said:
            return ""
        return ": ".join(part for part in (start, said) if part) or "nothing to look up"

    def externals(self, conditions: Sequence[Condition]) -> str:
        """Return what Python computes between two joins."""
        said = []
        for condition in conditions:
            text = self.condition(condition)
            name = self._named.get(condition.into) if isinstance(condition, Assign) else None
            said.append(text if name is None else f"{name} = {text}")
        return f"in Python {', '.join(said)}"

    def _is_silent(self, condition: Condition, *, binds: bool = True) -> bool:
        """Return whether a condition is shown where its value is used, or has been shown."""
        if not isinstance(condition, Assign):
            return False
        value = condition.value
        if isinstance(value, str) and binds and self._named.get(value) == condition.into:
            made = self._made.get(value)
            return made is None or (isinstance(made, FunctorCall) and made.external)
        return condition.into in self._made and not (
            isinstance(value, FunctorCall) and value.external
        )

    def _steps(self, plan: Plan, steps: Sequence[Step]) -> Iterator[str]:
        used = [0] * len(plan.atoms)  # how many columns of each atom are bound
        at = 0
        while at < len(steps):
            step = steps[at]
            at += 1
            match step:
                case Leap(slot, atoms):
                    for number in atoms:
                        used[number] += 1
                    both = " and ".join(self.atom(plan.atoms[number]) for number in atoms)
                    yield f"{self._slot(slot)} on which {both} agree"
                case Seek(number, columns):
                    atom = plan.atoms[number]
                    used[number] += len(columns)
                    following = steps[at] if at < len(steps) else None
                    known = ", ".join(self._slot(atom.args[column]) for column in columns)
                    if isinstance(following, Scan) and following.atom == number:
                        at += 1
                        yield f"look up {self.atom(atom)} by {known}"
                    elif used[number] == len(atom.args):
                        if number != plan.driver:
                            yield f"check {self.atom(atom)}"
                    else:
                        yield f"in {self.atom(atom)} go to {known}"
                case Scan(number, columns):
                    atom = plan.atoms[number]
                    names = [s for s in (atom.args[column] for column in columns) if s is not None]
                    if not used[number] or not names:
                        if number != plan.driver:
                            yield f"each {self.atom(atom)}"
                    else:
                        shown = ", ".join(map(self._slot, names))
                        yield f"each {shown} of {self.atom(atom)}"
                case Bound(number):
                    said = [self._bound(plan, step)]
                    while at < len(steps) and isinstance(following := steps[at], Bound):
                        said.append(self._bound(plan, following))
                        at += 1
                    yield f"in {self.atom(plan.atoms[number])} only {', '.join(said)}"
                case Absent(number):
                    yield f"check {self.atom(plan.atoms[number])}"
                case Iterate(count):
                    yield f"each {self.condition(count)}"
                case Compute(what, binds) if not self._is_silent(what, binds=binds):
                    yield f"{'compute' if binds else 'check'} {self.condition(what)}"

    def _bound(self, plan: Plan, bound: Bound) -> str:
        slot = self._slot(plan.atoms[bound.atom].args[bound.column])
        by = self._slot(bound.slot)
        if bound.offset:
            by = f"{by} {'-' if bound.offset < 0 else '+'} {abs(bound.offset)}"
        return f"{slot} {bound.op.value} {by}"

    def condition(self, condition: Condition) -> str:
        """Return a condition."""
        match condition:
            case Assign(into, value) if into in self._made:
                return self._value(value)
            case Assign(into, value):
                made = self._made.get(value, value) if isinstance(value, str) else value
                return f"{self._slot(into)} = {self._value(made)}"
            case Check(op, left, right):
                return f"{self._slot(left)} {op.value} {self._slot(right)}"
            case Unpack(record, into):
                return f"[{', '.join(map(self._slot, into))}] = {self._slot(record)}"
            case Range(into, start, stop, step):
                bounds = [start, stop] if step is None else [start, stop, step]
                return f"{self._slot(into)} in range({', '.join(map(self._slot, bounds))})"
            case Filter(op, args, negated=negated):
                return f"{'!' * negated}{op}({', '.join(map(self._slot, args))})"

    def _value(self, value: str | FunctorCall) -> str:
        if isinstance(value, str):
            return self._slot(value)
        args = [self._slot(arg) for arg in value.args]
        if value.op in _SIGNS and len(args) == 2:
            return f"{args[0]} {_SIGNS[value.op]} {args[1]}"
        return f"-{args[0]}" if value.op == "neg" else f"{value.op}({', '.join(args)})"

    def _slot(self, slot: str | None) -> str:
        if slot is None:
            return "_"
        constant = self._rule.constants.get(slot)
        if constant is not None:
            text = format_value(constant.value, constant.type, self._records)
            return f'"{text}"' if constant.type.kind is Kind.SYMBOL else text
        value = self._made.get(slot)
        if value is None:
            return self._named.get(slot, slot.lstrip("%"))
        return self._slot(value) if isinstance(value, str) else f"({self._value(value)})"
