"""The order in which the atoms of a body pass values on (sideways information passing).

The slots of the guard are bound first: they hold what is asked for. Then the atom with the fewest
expected rows is taken, again and again. Stored atoms go before those that are computed on demand,
unless they have many rows: each value that is passed on may be a question. Negated atoms come last,
when all their slots are bound. An atom that shares nothing with those before it waits, even if it
has few rows now: plans outlive sizes.

A recursion must not ask for values that it computes: `p(n) :- p(n - 1), ..` would ask without end.
So within a recursion a column is bound only by values that are there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tidelog.plan.body import (
    Assign,
    AtomUse,
    Condition,
    FunctorCall,
    LoweredRule,
    Range,
    is_external,
    is_fallible,
    outputs,
)
from tidelog.plan.order import Stats, computed_slots

_UNKNOWN_ROWS = 1e6  # of a relation that is computed on demand
_VALUES = 1e3  # of each of its columns
_PRICE = 1e2  # of a row that has to be computed
_NOT_BOUND = 1e15
_APART = 1e4  # the price of a row of an atom that shares nothing with those before it


class Passing:
    """The order of the atoms of one rule, and what is bound when each of them is read."""

    def __init__(
        self,
        rule: LoweredRule,
        guard: AtomUse | None,
        own: frozenset[str],
        is_on_demand: Callable[[str], bool],
        stats: Callable[[str], Stats],
    ) -> None:
        """Find the order; `own` are the relations of the recursion that the rule is part of."""
        self._rule, self._own = rule, own
        self._is_on_demand, self._stats = is_on_demand, stats
        self._computed = computed_slots(rule.conditions)
        self._bound = {*rule.constants, *(guard.slots if guard is not None else ())}
        self._made: set[str] = set()
        """The bound slots whose values the rule has computed."""
        self._waiting = list(rule.conditions)
        self._placed: list[Condition] = []
        self._before: dict[int, tuple[Condition, ...]] = {}
        self.steps = [*self._order()]
        """The places of the atoms, each with the columns that are bound when it is read."""

    def binds(self, slots: Iterable[str]) -> bool:
        """Return whether all atoms together bind slots, to values that were there already."""
        return (self._bound - self._made).issuperset(slots)

    def conditions_before(self, place: int) -> Sequence[Condition]:
        """Return the conditions that can be computed before an atom is read."""
        return self._before[place]

    def _order(self) -> list[tuple[int, tuple[int, ...]]]:
        rule, steps = self._rule, []
        left = [place for place, _ in rule.positive]
        self._compute()
        while left:
            place = left[0]
            if len(left) > 1:
                place = min(left, key=lambda i: (self._cost(rule.atoms[i]), i))
            left.remove(place)
            steps.append(self._step(place))
        negated = [i for i, atom in enumerate(rule.atoms) if atom.negated]
        negated.sort(key=lambda i: self._is_on_demand(rule.atoms[i].relation))
        return [*steps, *map(self._step, negated)]

    def _step(self, place: int) -> tuple[int, tuple[int, ...]]:
        atom = self._rule.atoms[place]
        self._before[place] = tuple(self._placed)
        columns = self._columns(atom)
        if not atom.negated:
            self._bound |= atom.slots
            self._compute()
        return place, columns

    def _columns(self, atom: AtomUse) -> tuple[int, ...]:
        """Return the columns of an atom that are bound."""
        usable = self._bound
        if atom.relation in self._own and not atom.negated:
            usable = self._bound - self._made
        return tuple(i for i, slot in enumerate(atom.args) if slot in usable)

    def _cost(self, atom: AtomUse) -> float:
        """Return the number of rows that an atom is expected to add, in rows that are stored."""
        columns = self._columns(atom)
        if not self._is_on_demand(atom.relation):
            stats = self._stats(atom.relation)
            found = stats.rows / stats.prefixes(columns)
            return found if columns else _APART * max(found, _APART * bool(found))
        if not columns:
            return _NOT_BOUND
        return _PRICE * max(1.0, _UNKNOWN_ROWS / _VALUES ** len(columns))

    def _compute(self) -> None:
        """Bind what conditions compute from bound slots."""
        moved = True
        while moved:
            moved = False
            for condition in self._waiting:
                if not self._run(condition):
                    continue
                self._waiting.remove(condition)
                self._placed.append(condition)
                moved = True
                break

    def _run(self, condition: Condition) -> bool:
        """Bind the slots of a condition, if it can be computed; return whether it can."""
        bound = self._bound
        if condition.inputs <= bound:
            new = set(outputs(condition)) - bound
            makes = isinstance(condition, Range) or (
                isinstance(condition, Assign) and isinstance(condition.value, FunctorCall)
            )
            if makes or condition.inputs & self._made:
                self._made |= new
            bound |= new
            return True
        match condition:
            case Assign(into, str(value)) if into in bound and value not in self._computed:
                if into in self._made:
                    self._made.add(value)
                bound.add(value)
                return True
        return False


def needed_conditions(
    rule: LoweredRule, head: AtomUse, atoms: Sequence[AtomUse], conditions: Sequence[Condition]
) -> tuple[tuple[Condition, ...], set[str]]:
    """Return the conditions for a rule that asks: those that narrow it, or bind what it asks for.

    And the slots that are bound then.

    A condition that may fail narrows nothing: whether its failure is an error depends on the
    answers, too.
    """
    needed = set(head.slots)
    known = set(rule.constants).union(*(atom.slots for atom in atoms))
    size = -1
    while size != len(needed):
        size = len(needed)
        for condition in conditions:
            if needed.intersection(outputs(condition)) - known:
                needed |= condition.inputs
    kept: list[Condition] = []
    for condition in conditions:  # in the order in which they can be computed
        binds = needed.intersection(outputs(condition)) - known
        is_reverse = (
            isinstance(condition, Assign)
            and isinstance(condition.value, str)
            and condition.into in known
        )
        is_plain = not is_fallible(condition) and not is_external(condition)
        if (condition.inputs <= known or is_reverse) and (is_plain or binds):
            kept.append(condition)
            known |= condition.inputs.union(outputs(condition))
    return tuple(kept), known
