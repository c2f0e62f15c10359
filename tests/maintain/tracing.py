"""Leapfrog triejoin in the slow, obvious way: its trace, and what a certificate must cover.

It follows the steps of a plan over sets of rows. Rows are codes, as the trace under test sees them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.join.trace import AtomPrefixUse, RuleTrace
from tidelog.logic.program import Comparison
from tidelog.plan.skipping import skipping_atom
from tidelog.plan.steps import Absent, Leap, Plan, Seek, Window
from tidelog.store.catalog import Catalog
from tidelog.store.sensitivity import HIGHEST, LOWEST

Tables = Sequence[set[tuple[int, ...]]]


class NodeOfLeap(NamedTuple):
    """A leap at a node: the values of slots, those that it finds, and its window."""

    node: tuple[int, ...]
    slots: dict[str, int]
    values: list[int]
    low: int
    high: int


class Operation(NamedTuple):
    """An operation of an iterator: what it depends on, at which node."""

    use: int
    node: tuple[int, ...]
    first: int
    last: int
    found: bool = True
    skipped: tuple[int, ...] = ()
    """The values that it goes past at a negated atom; with others, it is another operation."""


class SlowTrace:
    """The operations of a join, and the nodes at which each use of an atom takes place."""

    def __init__(
        self, plan: Plan, tables: Tables, constants: Mapping[str, int], *, opens_all: bool = False
    ) -> None:
        """Run the join; `tables` has the rows of each atom, in the order of the plan.

        Windows compare codes, so the domains of what they compare have to have the same bias.
        """
        self._plan, self._opens_all = plan, opens_all
        self._tries = [_trie(rows) for rows in tables]
        self.operations: list[Operation] = []
        self.nodes: dict[int, list[NodeOfLeap]] = {}
        """For each LEAP, by its first use."""
        self._numbers: list[int] = []
        number = 0
        for step in plan.steps:
            self._numbers.append(number)
            if isinstance(step, Leap):
                number += len(step.atoms) + len(step.absent)
            else:
                number += isinstance(step, Seek | Absent)
        self._run(0, (), dict(constants), [trie for trie in self._tries])

    def _run(self, at: int, node: tuple[int, ...], slots: dict[str, int], tries: list) -> None:
        if at == len(self._plan.steps):
            return
        step, use = self._plan.steps[at], self._numbers[at]
        match step:
            case Window():
                self._run(at + 1, node, slots, tries)
            case Leap(slot, atoms, _):
                low, high = self._window(at, slots)
                lists = [sorted(tries[a]) for a in atoms]
                lists += [sorted(self._below(a, slots)) for a in step.absent]
                values = []
                if low <= high:
                    values = list(self._leap(step, use, node, lists, low, high))
                    found = NodeOfLeap(node, dict(slots), values, low, high)
                    self.nodes.setdefault(use, []).append(found)
                for value in values:
                    below = list(tries)
                    for atom in atoms:
                        below[atom] = tries[atom][value]
                    self._run(at + 1, (*node, value), {**slots, slot: value}, below)
            case Seek(atom) | Absent(atom):
                columns = step.columns if isinstance(step, Seek) else self._plan.orders[atom]
                trie, value = tries[atom], 0
                for column in columns:
                    value = slots[str(self._plan.atoms[atom].args[column])]
                    trie = trie.get(value) if trie is not None else None
                self.operations.append(Operation(use, node, value, value, trie is not None))
                if (trie is not None) == isinstance(step, Seek):
                    below = list(tries)
                    below[atom] = trie
                    self._run(at + 1, node, slots, below)
            case _:
                raise AssertionError(f"not in these tests: {step}")

    def _window(self, at: int, slots: dict[str, int]) -> tuple[int, int]:
        """Return the first and the last value that the windows before a leap leave."""
        low, high = LOWEST, HIGHEST
        while at and isinstance(window := self._plan.steps[at - 1], Window):
            at -= 1
            value = slots[window.other] + window.offset
            match window.op:
                case Comparison.GE:
                    low = max(low, value)
                case Comparison.GT:
                    low = max(low, value + 1)
                case Comparison.LE:
                    high = min(high, value)
                case _:
                    high = min(high, value - 1)
        return low, high

    def _below(self, atom: int, slots: dict[str, int]) -> dict:
        """Return what a negated atom has in its last column."""
        trie = self._tries[atom]
        for column in self._plan.orders[atom][:-1]:
            trie = trie.get(slots[str(self._plan.atoms[atom].args[column])], {})
        return trie

    def _leap(
        self, step: Leap, use: int, node: tuple[int, ...], atoms: list[list[int]], low: int,
        high: int,
    ) -> Iterator[int]:  # fmt: skip
        """Yield the values on which all agree (leapfrog-maintenance.md, 4.1)."""
        positive = len(step.atoms)

        def after(number: int, target: int) -> int | None:
            place = bisect_left(atoms[number], target)
            return atoms[number][place] if place < len(atoms[number]) else None

        def note(number: int, first: int, found: int | None, *, skips: bool = False) -> None:
            is_found = found is not None and found <= high
            last = found if is_found else high
            skipped = tuple(v for v in atoms[number] if skips and first <= v <= last)
            self.operations.append(Operation(use + number, node, first, last, is_found, skipped))

        def move(number: int, first: int, target: int) -> int | None:
            found = after(number, target)
            note(number, first, found)
            return None if found is None or found > high else found

        at: dict[int, int] = {}
        value = low
        if low == LOWEST:
            for number in range(positive if self._opens_all else 1):
                found = move(number, LOWEST, LOWEST)
                if found is None:
                    return
                at[number] = found
            value = max(at.values())
        while True:
            behind = [n for n in range(len(atoms)) if at.get(n) != value]
            if not behind:
                yield value
                if value >= high:
                    return
                at = {}
                found = move(0, value, value + 1)
                if found is None:
                    return
                at[0] = value = found
            elif behind[0] < positive:
                found = move(behind[0], value, value)
                if found is None:
                    return
                at = at if found == value else {}
                at[behind[0]] = value = found
            elif after(behind[0], value) != value:
                note(behind[0], value, value)
                at[behind[0]] = value
            else:
                whole = skipping_atom(self._plan, step, step.absent[behind[0] - positive])
                lacking = set(atoms[behind[0]])
                found = next((v for v in atoms[whole] if v > value and v not in lacking), None)
                note(whole, value, found, skips=True)
                note(behind[0], value, found, skips=True)
                if found is None or found > high:
                    return
                at = {whole: found, behind[0]: found}
                value = found

    def values_of(self, atom: int, use: AtomPrefixUse, slots: Mapping[str, int]) -> set[int]:
        """Return the values that an atom has for a use, when slots have these values."""
        trie = self._tries[atom]
        for slot in use.key:
            trie = trie.get(slots[slot], {})
        return set(trie)


def _trie(rows: set[tuple[int, ...]]) -> dict:
    root: dict = {}
    for row in rows:
        below = root
        for value in row:
            below = below.setdefault(value, {})
    return root


def tables_of(catalog: Catalog, trace: RuleTrace) -> Tables:
    """Return the rows of the atoms of a trace as codes, in the orders of its plan."""
    found = []
    for atom, order in zip(trace.plan.atoms, trace.plan.orders, strict=True):
        relation = catalog.relations[atom.relation]
        codes = relation.unpack(relation.rows())
        found.append({tuple(row[c] for c in order) for row in codes.T.tolist()})
    return found


def slow_trace(
    catalog: Catalog, trace: RuleTrace, constants: Mapping[str, int], *, opens_all: bool = False
) -> SlowTrace:
    """Return the trace that a run from the start has now."""
    return SlowTrace(trace.plan, tables_of(catalog, trace), constants, opens_all=opens_all)


def intervals_of(use: AtomPrefixUse) -> set[tuple[tuple[int, ...], int, int]]:
    """Return the intervals of an index: the node, the first and the last value."""
    assert use.index is not None
    width, found = len(use.key), set()
    for row in use.index.rows().T.tolist():
        first, last = row[width : width + 2]
        values = dict(zip(use.others, row[width + 2 :], strict=True))
        if use.is_point:
            first = 0 if first == LOWEST else first
            last = first
            values[use.last] = first
        values.update(zip(use.key, row[:width], strict=True))
        found.add((tuple(values[slot] for slot in use.node), first, last))
    return found


def expected_intervals(
    slow: SlowTrace, trace: RuleTrace, number: int
) -> set[tuple[tuple[int, ...], int, int]]:
    """Return the intervals that a run from the start records for a use. No code is below 0."""
    is_point = trace.uses[number].is_point
    return {
        (op.node, op.first if op.first or is_point else LOWEST, op.last)
        for op in slow.operations
        if op.use == number
    }


def assert_covered(trace: RuleTrace, slow: SlowTrace, most: int) -> None:
    """Assert that the indexes are a certificate of the join.

    At each node, a value of the join is in an interval of every use that has an index. Any other
    value up to `most` is in an interval of some atom that lacks it, or lacking in an atom whose use
    has no index.
    """
    held = [None if use.index is None else intervals_of(use) for use in trace.uses]
    by_node: list[dict[tuple[int, ...], list[tuple[int, int]]]] = []
    for intervals in held:
        nodes: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        for node, first, last in intervals or ():
            nodes.setdefault(node, []).append((first, last))
        by_node.append(nodes)

    def covers(use: int, node: tuple[int, ...], value: int) -> bool:
        return held[use] is None or any(
            first <= value <= last for first, last in by_node[use].get(node, ())
        )

    steps = [step for step in trace.plan.steps if isinstance(step, Leap)]
    for step, (use, nodes) in zip(steps, sorted(slow.nodes.items()), strict=False):
        atoms = (*step.atoms, *step.absent)
        uses = range(use, use + len(atoms))
        for node, slots, values, low, high in nodes:
            present = [
                slow.values_of(a, trace.uses[u], slots) for a, u in zip(atoms, uses, strict=True)
            ]
            for value in range(max(0, low), min(most, high) + 1):
                if value in values:
                    assert all(covers(u, node, value) for u in uses), (use, node, value)
                else:
                    assert any(
                        (value in has) == (number >= len(step.atoms)) and covers(u, node, value)
                        for number, (u, has) in enumerate(zip(uses, present, strict=True))
                    ), (use, node, value)
    for op in slow.operations:
        if trace.uses[op.use].is_point and trace.uses[op.use].node:
            assert covers(op.use, op.node, op.first), op
