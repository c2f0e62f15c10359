"""Leapfrog triejoin in the slow, obvious way: its trace, and what a certificate must cover.

It follows the steps of a plan over sets of rows. Rows are codes, as the trace under test sees them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tidelog.join.trace import AtomPrefixUse, RuleTrace
from tidelog.plan.steps import Absent, Leap, Plan, Seek
from tidelog.store.catalog import Catalog
from tidelog.store.sensitivity import HIGHEST, LOWEST

Tables = Sequence[set[tuple[int, ...]]]


class Operation(NamedTuple):
    """An operation of an iterator: what it depends on, at which node."""

    use: int
    node: tuple[int, ...]
    first: int
    last: int
    found: bool = True


class SlowTrace:
    """The operations of a join, and the nodes at which each use of an atom takes place."""

    def __init__(
        self, plan: Plan, tables: Tables, constants: Mapping[str, int], *, opens_all: bool = False
    ) -> None:
        """Run the join; `tables` has the rows of each atom, in the order of the plan."""
        self._plan, self._opens_all = plan, opens_all
        self._tries = [_trie(rows) for rows in tables]
        self.operations: list[Operation] = []
        self.nodes: dict[int, list[tuple[tuple[int, ...], dict[str, int], list[int]]]] = {}
        """For each LEAP, by its first use: nodes, the values of slots, values of the variable."""
        self._numbers: list[int] = []
        number = 0
        for step in plan.steps:
            self._numbers.append(number)
            number += len(step.atoms) if isinstance(step, Leap) else isinstance(step, Seek | Absent)
        self._run(0, (), dict(constants), [trie for trie in self._tries])

    def _run(self, at: int, node: tuple[int, ...], slots: dict[str, int], tries: list) -> None:
        if at == len(self._plan.steps):
            return
        step, use = self._plan.steps[at], self._numbers[at]
        match step:
            case Leap(slot, atoms, _):
                values = list(self._leap(use, node, [sorted(tries[a]) for a in atoms]))
                self.nodes.setdefault(use, []).append((node, dict(slots), values))
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

    def _leap(self, use: int, node: tuple[int, ...], atoms: list[list[int]]) -> Iterator[int]:
        """Yield the values on which all agree (leapfrog-maintenance.md, 4.1)."""

        def move(number: int, first: int, target: int) -> int | None:
            place = bisect_left(atoms[number], target)
            found = atoms[number][place] if place < len(atoms[number]) else None
            last = HIGHEST if found is None else found
            self.operations.append(Operation(use + number, node, first, last, found is not None))
            return found

        at: dict[int, int] = {}
        for number in range(len(atoms) if self._opens_all else 1):
            found = move(number, LOWEST, LOWEST)
            if found is None:
                return
            at[number] = found
        value = max(at.values())
        while True:
            behind = [n for n in range(len(atoms)) if at.get(n) != value]
            if behind:
                found = move(behind[0], value, value)
                at = at if found == value else {}
                number = behind[0]
            else:
                yield value
                at, number = {}, 0
                found = move(0, value, value + 1)
            if found is None:
                return
            at[number] = value = found

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
        uses = range(use, use + len(step.atoms))
        for node, slots, values in nodes:
            present = [
                slow.values_of(a, trace.uses[u], slots)
                for a, u in zip(step.atoms, uses, strict=True)
            ]
            for value in range(most + 1):
                if value in values:
                    assert all(covers(u, node, value) for u in uses), (use, node, value)
                else:
                    assert any(
                        value not in has and covers(u, node, value)
                        for u, has in zip(uses, present, strict=True)
                    ), (use, node, value)
    for op in slow.operations:
        if trace.uses[op.use].is_point and trace.uses[op.use].node:
            assert covers(op.use, op.node, op.first), op
