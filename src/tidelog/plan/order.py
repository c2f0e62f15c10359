"""The planner: the order in which a join binds the variables of a body.

The cost of a join is the number of its partial results: every value bound in every step. The
planner searches the orders of the variables that atoms share, depth first, by the estimated number
of partial results, and abandons an order that is more expensive than the best complete one, or than
another one that has bound the same variables and read the same columns. Columns that no other atom
shares come last: they only multiply the results.

Estimates assume that columns are independent. With n rows and d(c) distinct values in column c, a
relation narrowed by columns C has min(n, product of d) distinct prefixes, and its next column c has

    fanout(C, c) = distinct(C + c) / distinct(C)

values; atoms with fanouts f1, f2 over a domain of D values agree on about f1 * f2 / D of them.

A plan reads each atom in some order of its columns. It uses them in groups, one per step: all
columns with known values at once, a variable by itself, the remaining columns at the end. Any order
within a group will do, so an existing order of the relation often fits. An order that no relation
has yet must be built and maintained, which is part of the cost.

A comparison with a known value bounds the next column of an atom (plan/bounds.py): only the rows
between are read. The driver is never bounded, because its rows would have to be sorted first. Nor
is a column bounded by a constant: it would need an order of its own, to be used once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidelog.plan.body import (
    Assign,
    AtomUse,
    Check,
    Condition,
    Range,
    Unpack,
    is_external,
    outputs,
)
from tidelog.plan.bounds import SlotBound
from tidelog.plan.steps import Absent, Bound, Compute, Iterate, Leap, Plan, Scan, Seek, Step

Groups = tuple[tuple[int, ...], ...]
"""The columns of an atom, in the groups in which a plan uses them."""
Order = tuple[int, ...]
"""All columns of a relation, in the order in which an index sorts by them."""

_MOST_STATES = 4000
_BOUND_SHARE = 0.3  # of the values, those that a bound is assumed to leave


@dataclass(frozen=True)
class Stats:
    """The size of a relation and the distinct values of each of its columns."""

    rows: float
    distinct: tuple[float, ...]

    def prefixes(self, columns: Sequence[int]) -> float:
        """Return the estimated number of distinct values of some columns together."""
        product = 1.0
        for column in columns:
            product *= max(1.0, self.distinct[column])
        return max(1.0, min(self.rows, product))


@dataclass(slots=True)
class _State:
    bound: set[str]
    consumed: list[tuple[int, ...]]
    groups: list[Groups]
    atoms: list[int]  # positive atoms with columns left
    absent: list[int]  # negated atoms not yet checked
    conditions: list[Condition]
    started: bool = False  # whether a step has used the driver
    steps: list[Step] = field(default_factory=list)
    partial: float = 1.0
    cost: float = 0.0

    def copy(self) -> _State:
        return _State(
            self.bound.copy(),
            self.consumed.copy(),
            self.groups.copy(),
            self.atoms.copy(),
            self.absent.copy(),
            self.conditions.copy(),
            self.started,
            self.steps.copy(),
            self.partial,
            self.cost,
        )


class Orderer:
    """Finds the cheapest plan for one body."""

    def __init__(
        self,
        atoms: Sequence[AtomUse],
        conditions: Sequence[Condition],
        known: frozenset[str],
        driver: int | None,
        stats: Callable[[int], Stats],
        held: Callable[[int], Sequence[Order]] = lambda atom: (),
        price: float = 0.0,
        sorting: float = 0.0,
        *,
        whole_driver: bool = False,
        bounds: Sequence[SlotBound] = (),
        kept: frozenset[str] = frozenset(),
        late: frozenset[str] = frozenset(),
        alone: frozenset[str] = frozenset(),
    ) -> None:
        """Prepare to plan.

        `held` returns the orders that an atom's relation has. `price` is the cost of another order
        for each of its rows, `sorting` the cost of sorting a row of the driver. With
        `whole_driver`, the first step scans the driver, so that its rows can be in any order.
        `bounds` are those that conditions imply, `kept` the slots that are read after the join.
        Slots in `late` are bound after the others that atoms share. Those in `alone` can be bound
        before they are all that is left of an atom, though no other atom has them.
        """
        self._atoms = tuple(atoms)
        self._slots = [atom.slots for atom in atoms]
        self._held = [() if i == driver else tuple(held(i)) for i in range(len(atoms))]
        self._price, self._sorting = price, sorting
        self._stats = [stats(i) for i in range(len(atoms))]
        self._driver = driver
        self._whole_driver = whole_driver
        self._bounds, self._kept, self._late, self._alone = bounds, kept, late, alone
        self._known = known
        self._conditions = [c for c in conditions if not is_external(c)]
        self._computed = computed_slots(conditions)
        self._domain = self._domain_sizes()
        self._places = self._places_of_slots()
        self._counts: list[dict[Order, float]] = [{} for _ in atoms]
        self._best: _State | None = None
        self._best_cost = math.inf
        self._seen: dict[object, list[tuple[float, float]]] = {}
        self._tried = 0

    def _domain_sizes(self) -> dict[str, float]:
        sizes: dict[str, float] = {}
        for atom, stats in zip(self._atoms, self._stats, strict=True):
            for column, slot in enumerate(atom.args):
                if slot is not None:
                    sizes[slot] = max(sizes.get(slot, 1.0), stats.distinct[column])
        return sizes

    def _places_of_slots(self) -> dict[str, list[tuple[int, int]]]:
        """Return the positive atoms that have each slot, with its first column there."""
        places: dict[str, list[tuple[int, int]]] = {}
        for i, atom in enumerate(self._atoms):
            if not atom.negated:
                for slot in dict.fromkeys(atom.args):
                    if slot is not None:
                        places.setdefault(slot, []).append((i, atom.args.index(slot)))
        return places

    def _prefixes(self, atom: int, columns: Order) -> float:
        """Return the estimated number of distinct values of some columns of an atom."""
        counts = self._counts[atom]
        count = counts.get(columns)
        if count is None:
            count = counts[columns] = self._stats[atom].prefixes(columns)
        return count

    def plan(self) -> Plan:
        """Return the cheapest plan found."""
        state = _State(
            bound=set(self._known),
            consumed=[() for _ in self._atoms],
            groups=[() for _ in self._atoms],
            atoms=[i for i, atom in enumerate(self._atoms) if not atom.negated],
            absent=[i for i, atom in enumerate(self._atoms) if atom.negated],
            conditions=list(self._conditions),
        )
        self._advance(state)
        self._search(state)
        best = self._best
        assert best is not None, "no order binds all variables"
        assert not best.absent, "a negated atom has unbound variables"
        orders = tuple(
            fitting(groups, held) or any_fitting(groups)
            for groups, held in zip(best.groups, self._orders_at_hand(), strict=True)
        )
        steps = tuple(
            Seek(s.atom, in_order(s.columns, orders[s.atom])) if isinstance(s, Seek) else s
            for s in best.steps
        )
        return Plan(self._atoms, self._driver, steps, orders, best.cost)

    def _orders_at_hand(self) -> list[Sequence[Order]]:
        """Return the orders that cost nothing; a driver is sorted by its columns as declared."""
        own = [tuple(range(len(atom.args))) for atom in self._atoms]
        return [(own[i],) if i == self._driver else held for i, held in enumerate(self._held)]

    def _new_orders(self, state: _State) -> float:
        """Return the cost of the orders that the plan needs and that do not exist."""
        total = 0.0
        for i, groups in enumerate(state.groups):
            if not groups:
                continue
            if i != self._driver:
                if fitting(groups, self._held[i]) is None:
                    total += self._price * self._stats[i].rows
            elif self._sorting:
                own = tuple(range(len(self._atoms[i].args)))
                if fitting(groups, (own,)) is None:
                    total += self._sorting * self._stats[i].rows
        return total

    # --- search ---

    def _search(self, state: _State) -> None:
        if not state.atoms:
            if state.cost >= self._best_cost:
                return
            self._finish(state)
            cost = state.cost + self._new_orders(state)
            if cost < self._best_cost:
                self._best, self._best_cost = state, cost
            return
        # The next step costs half of the partial results at least.
        if state.cost + 0.5 * state.partial >= self._best_cost or self._is_dominated(state):
            return
        choices = []
        for choose in self._choices(state):
            following = state.copy()
            choose(following)
            self._advance(following)
            choices.append(following)
        choices.sort(key=lambda s: s.cost + s.partial)
        self._tried += len(choices)
        if self._tried > _MOST_STATES:
            choices = choices[:1]  # a large body: from here on, follow the best choice only
        for following in choices:
            self._search(following)

    def _is_dominated(self, state: _State) -> bool:
        """Return whether a state from which the same steps lead on was no worse in any way.

        The orders of atoms that are read to the end are paid for; how the columns of others were
        read decides which orders will do for them.
        """
        cost = state.cost + self._new_orders(state)
        if cost >= self._best_cost:
            return True
        pending = tuple(state.groups[a] for a in state.atoms)
        key = (frozenset(state.bound), pending, len(state.conditions), state.started)
        seen = self._seen.setdefault(key, [])
        if any(c <= cost and p <= state.partial for c, p in seen):
            return True
        seen.append((cost, state.partial))
        return False

    def _choices(self, state: _State) -> Iterator[Callable[[_State], None]]:
        driver = self._driver
        if driver is not None and driver in state.atoms and not state.started:
            # The first step uses the driver: all of it, or a variable that it shares.
            yield lambda s: self._scan(s, driver)
            if not self._whole_driver:
                for slot in self._shared(state, (driver,)):
                    yield partial(self._leap, slot=slot)
            return
        shared = list(self._shared(state, state.atoms))
        shared = [slot for slot in shared if slot not in self._late] or shared
        for slot in shared:
            yield partial(self._leap, slot=slot)
        if not shared:
            # Only private columns are left. The atom with most rows is last: it multiplies most.
            atom = min(
                state.atoms, key=lambda a: (self._unlocks_nothing(state, a), self._rows(state, a))
            )
            yield lambda s: self._scan(s, atom)
            for column in self._bounded_columns(state):
                yield partial(self._bounded_scan, atom=column[0], column=column[1])

    def _shared(self, state: _State, atoms: Sequence[int]) -> Iterator[str]:
        """Yield the unbound slots of `atoms` that another pending atom has as well."""
        seen: set[str] = set()
        for a in atoms:
            for slot in self._atoms[a].args:
                if slot is None or slot in state.bound or slot in seen:
                    continue
                seen.add(slot)
                places = self._places[slot]
                pending = len(places) > 1 and sum(b in state.atoms for b, _ in places) > 1
                if pending or slot in self._alone:
                    yield slot

    def _unlocks_nothing(self, state: _State, atom: int) -> bool:
        slots = self._slots[atom]
        waiting = [*state.conditions, *(self._atoms[i] for i in state.absent)]
        return not any(slots & (c.slots if isinstance(c, AtomUse) else c.inputs) for c in waiting)

    # --- steps ---

    def _rows(self, state: _State, atom: int) -> float:
        return self._stats[atom].rows / self._prefixes(atom, state.consumed[atom])

    def _fanout(self, state: _State, atom: int, column: int) -> float:
        done = state.consumed[atom]
        return self._prefixes(atom, (*done, column)) / self._prefixes(atom, done)

    def _leap(self, state: _State, slot: str) -> None:
        places = [place for place in self._places[slot] if place[0] in state.atoms]
        atoms, columns = zip(*places, strict=True)
        fanouts = sorted([self._fanout(state, a, c) for a, c in places])
        domain = max(self._domain[slot], fanouts[-1])
        agreed = fanouts[0] * math.prod([f / domain for f in fanouts[1:]])
        share = 1.0
        if self._bounds:
            for a, c in places:
                share = min(share, _BOUND_SHARE ** self._bound(state, a, c))
            if share < 1.0:
                self._drop_checks(state, slot)
        state.cost += state.partial * (1.0 + fanouts[0] * len(atoms) * share)
        state.partial *= agreed * share
        state.steps.append(Leap(slot, atoms, columns))
        state.started = state.started or self._driver in atoms
        state.bound.add(slot)
        for a, column in zip(atoms, columns, strict=True):
            self._consume(state, a, (column,))

    def _bounded_columns(self, state: _State) -> Iterator[tuple[int, int]]:
        """Yield the columns, with their atoms, that known values bound."""
        if not self._bounds:
            return
        for atom in state.atoms:
            for column, slot in enumerate(self._atoms[atom].args):
                if column not in state.consumed[atom] and self._bounds_of(state, atom, slot):
                    yield atom, column

    def _bounds_of(self, state: _State, atom: int, slot: str | None) -> list[SlotBound]:
        if atom == self._driver:
            return []
        return [
            bound
            for bound in self._bounds
            if bound.slot == slot
            and bound.other in state.bound
            and bound.other not in self._known
            and bound.check in state.conditions
        ]

    def _bound(self, state: _State, atom: int, column: int) -> int:
        """Bound a column by all values that are known; return how many bounds it has."""
        bounds = self._bounds_of(state, atom, self._atoms[atom].args[column])
        for bound in bounds:
            state.steps.append(Bound(atom, column, bound.op, bound.other, bound.offset))
        return len(bounds)

    def _drop_checks(self, state: _State, slot: str) -> None:
        """Drop the comparisons that bounds have replaced, and sums that only these read."""
        for bound in self._bounds:
            if bound.slot != slot or bound.other not in state.bound - self._known:
                continue
            if bound.check in state.conditions:
                state.conditions.remove(bound.check)
        for bound in self._bounds:
            if bound.slot == slot and bound.sum in state.conditions:
                into = bound.sum.into
                read = any(
                    into in c.inputs or into in outputs(c)
                    for c in state.conditions
                    if c != bound.sum
                )
                read = read or any(into in atom.slots for atom in self._atoms)
                if not read and into not in self._kept:
                    state.conditions.remove(bound.sum)

    def _bounded_scan(self, state: _State, atom: int, column: int) -> None:
        slot = self._atoms[atom].args[column]
        assert slot is not None
        bounds = self._bound(state, atom, column)
        self._drop_checks(state, slot)
        self._scan(state, atom, (column,), _BOUND_SHARE**bounds)

    def _scan(
        self, state: _State, atom: int, first: tuple[int, ...] = (), share: float = 1.0
    ) -> None:
        """Scan an atom; `first` are columns that its order needs before the others."""
        done = state.consumed[atom]
        columns = tuple(c for c in range(len(self._atoms[atom].args)) if c not in done)
        rows = self._rows(state, atom) * share
        state.cost += state.partial * (0.5 + rows)
        state.partial *= rows
        state.steps.append(Scan(atom, columns))
        state.started = state.started or self._driver == atom
        state.bound.update(self._slots[atom])
        if first:
            self._consume(state, atom, first)
        rest = tuple(column for column in columns if column not in first)
        if rest:
            self._consume(state, atom, rest)

    def _consume(self, state: _State, atom: int, columns: tuple[int, ...]) -> None:
        state.consumed[atom] = (*state.consumed[atom], *columns)
        state.groups[atom] = (*state.groups[atom], columns)
        if len(state.consumed[atom]) == len(self._atoms[atom].args):
            state.atoms.remove(atom)

    def _advance(self, state: _State) -> None:
        """Add all steps that need no choice: computations, tests, restriction by bound values."""
        moved = True
        while moved:
            computed = bool(state.conditions or state.absent) and self._compute(
                state, fallible=False
            )
            moved = computed or self._narrow(state)
            moved = moved or (bool(state.conditions) and self._binding(state))

    def _compute(self, state: _State, *, fallible: bool) -> bool:
        """Add the conditions whose inputs are bound; those that can fail only if `fallible`."""
        moved = False
        for written in list(state.conditions):
            condition = directed(written, state.bound, self._computed)
            if not condition.inputs <= state.bound or isinstance(condition, Range):
                continue
            can_fail = (
                isinstance(condition, Assign)
                and not isinstance(condition.value, str)
                and condition.value.fallible
            )
            if can_fail and not fallible:
                continue
            state.conditions.remove(written)
            self._append_condition(state, condition)
            moved = True
        for atom in list(state.absent):
            if self._slots[atom] <= state.bound:
                state.absent.remove(atom)
                state.steps.append(Absent(atom))
                state.consumed[atom] = tuple(range(len(self._atoms[atom].args)))
                state.groups[atom] = (state.consumed[atom],)
                state.cost += state.partial
                moved = True
        return moved

    def _append_condition(self, state: _State, condition: Condition) -> None:
        assert isinstance(condition, Assign | Check | Unpack)
        binds = any(slot not in state.bound for slot in outputs(condition))
        state.steps.append(Compute(condition, binds))
        state.bound.update(outputs(condition))
        state.cost += state.partial * 0.2
        if not binds:
            state.partial *= 0.5

    def _binding(self, state: _State) -> bool:
        """Add one computation that can fail, if anything that is pending needs its value."""
        needed = set().union(*(self._slots[a] for a in (*state.atoms, *state.absent)))
        for condition in state.conditions:
            needed |= condition.inputs
        for condition in list(state.conditions):
            new = [slot for slot in outputs(condition) if slot not in state.bound]
            if not new or not condition.inputs <= state.bound:
                continue
            if isinstance(condition, Range):
                continue
            if needed.intersection(new):
                state.conditions.remove(condition)
                self._append_condition(state, condition)
                return True
        return False

    def _narrow(self, state: _State) -> bool:
        moved = False
        for a in tuple(state.atoms):
            if self._slots[a].isdisjoint(state.bound):
                continue
            args, done = self._atoms[a].args, state.consumed[a]
            columns = tuple(
                c for c, slot in enumerate(args) if slot in state.bound and c not in done
            )
            if columns:
                before = self._prefixes(a, done)
                state.steps.append(Seek(a, columns))
                self._consume(state, a, columns)
                after = self._prefixes(a, state.consumed[a])
                chance = after / before
                for column in columns:
                    slot = args[column]
                    assert slot is not None
                    chance /= max(1.0, self._domain.get(slot, 1.0))
                state.cost += state.partial
                state.partial *= min(1.0, chance)
                moved = True
        return moved

    def _finish(self, state: _State) -> None:
        """Add the remaining steps: ranges, and computations that can fail, as late as possible."""
        while state.conditions or state.absent:
            if self._compute(state, fallible=False) or self._binding(state):
                continue
            ranges = [
                c for c in state.conditions if isinstance(c, Range) and c.inputs <= state.bound
            ]
            if ranges:
                state.conditions.remove(ranges[0])
                state.steps.append(Iterate(ranges[0]))
                state.bound.add(ranges[0].into)
                state.partial *= 10.0
                state.cost += state.partial
            elif not self._compute(state, fallible=True):
                break  # the others need values that Python computes between two joins


def computed_slots(conditions: Sequence[Condition]) -> frozenset[str]:
    """Return the slots that computations bind. No equality may bind them before."""
    return frozenset(
        slot
        for condition in conditions
        if not (isinstance(condition, Assign) and isinstance(condition.value, str))
        for slot in outputs(condition)
    )


def directed(condition: Condition, bound: set[str], computed: frozenset[str]) -> Condition:
    """Return a condition; an equality between two slots in the direction in which it can bind."""
    if (
        isinstance(condition, Assign)
        and isinstance(condition.value, str)
        and condition.value not in bound
        and condition.value not in computed
        and condition.into in bound
    ):
        return Assign(condition.value, condition.into)
    return condition


# --- orders of columns --------------------------------------------------------------------------


def fitting(groups: Groups, orders: Iterable[Order]) -> Order | None:
    """Return the first order that has the columns group by group, or None."""
    for order in orders:
        at = 0
        for group in groups:
            if set(order[at : at + len(group)]) != set(group):
                break
            at += len(group)
        else:
            return order
    return None


def any_fitting(groups: Groups) -> Order:
    """Return an order that has the columns group by group."""
    return tuple(column for group in groups for column in sorted(group))


def in_order(columns: Sequence[int], order: Order) -> tuple[int, ...]:
    """Return some columns, sorted by their position in `order`."""
    return tuple(sorted(columns, key=order.index))
