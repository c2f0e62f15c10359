"""Queries evaluated naively: by their definition, and from the reducts of a join tree.

A row is the values of some variables, in the order of their names. Predicates mean something
arbitrary but fixed, unless a test says what.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random

from tidelog.plan.theta.join_tree import JoinShape, TreeNode
from tidelog.plan.theta.query import ThetaQuery
from tidelog.plan.theta.triplet import Edge, ThetaPredicate

Values = Mapping[str, int]
Rows = Counter[tuple[int, ...]]
Holds = Callable[[ThetaPredicate, Values], bool]
Database = Sequence[Rows]
"""The rows of each atom, with their multiplicities."""


def arbitrary(predicate: ThetaPredicate, values: Values) -> bool:
    """Return whether a predicate holds, for no reason."""
    weighted = (n * values[name] for n, name in enumerate(sorted(predicate.variables), 2))
    return (sum(weighted) + predicate.number) % 3 != 0


def less(predicate: ThetaPredicate, values: Values) -> bool:
    """Return whether `a < b` holds, for a predicate with such a text."""
    left, right = predicate.text.split(" < ")
    return values[left] < values[right]


def random_database(query: ThetaQuery, rng: Random) -> list[Rows]:
    """Return a few rows for each atom, some of them twice."""
    return [
        Counter(
            {
                tuple(rng.randrange(3) for _ in atom): rng.randint(1, 2)
                for _ in range(rng.randrange(8))
            }
        )
        for atom in query.atoms
    ]


def evaluated(query: ThetaQuery, database: Database, holds: Holds) -> Rows:
    """Return the result of a query by its definition: join, select, project."""
    found: Rows = Counter()
    for values, count in _joined(list(zip(query.atoms, database, strict=True))):
        if all(holds(predicate, values) for predicate in query.predicates):
            found[_row(values, query.output)] += count
    return found


class Reducts:
    """The reduct of every node of a join tree (Definition 6)."""

    def __init__(self, tree: TreeNode, query: ThetaQuery, database: Database, holds: Holds) -> None:
        self._holds = holds
        self._rows: dict[int, Rows] = {}
        self._tree, self._query = tree, query
        self._fill(tree, database)

    def of(self, node: TreeNode) -> Rows:
        """Return the reduct of a node."""
        return self._rows[id(node)]

    def _fill(self, node: TreeNode, database: Database) -> None:
        if node.atom is not None:
            self._rows[id(node)] = Counter(database[node.atom])
            return
        for edge in node.edges:
            self._fill(edge.child, database)
        children = [(edge.child.variables, self.of(edge.child)) for edge in node.edges]
        found: Rows = Counter()
        for values, count in _joined(children):
            if all(self._holds(p, values) for edge in node.edges for p in edge.predicates):
                found[_row(values, node.variables)] += count
        self._rows[id(node)] = found

    def enumerated(self, output: Edge) -> Rows:
        """Return the result, from the connex part alone (Algorithm 1), projected to `output`.

        Asserts that every row it looks at becomes part of the result.
        """
        found: Rows = Counter()
        for row in self.of(self._tree):
            for values, count in self._below(self._tree, row):
                found[_row(values, output)] += count
        return found

    def _below(self, node: TreeNode, row: tuple[int, ...]) -> list[tuple[Values, int]]:
        own = dict(zip(sorted(node.variables), row, strict=True))
        if not any(edge.child.is_connex for edge in node.edges):
            return [(own, self.of(node)[row])]
        ways: list[tuple[Values, int]] = [(own, 1)]
        for edge in node.edges:
            compatible = [
                way
                for child in self.of(edge.child)
                if self._fits(own, edge.child.variables, child, edge.predicates)
                for way in self._below(edge.child, child)
            ]
            assert compatible, "a row of a reduct that is in no result"
            ways = [
                ({**values, **more}, count * times)
                for values, count in ways
                for more, times in compatible
            ]
        return ways

    def _fits(
        self,
        own: Values,
        variables: Edge,
        row: tuple[int, ...],
        predicates: frozenset[ThetaPredicate],
    ) -> bool:
        values = dict(zip(sorted(variables), row, strict=True))
        if any(own[name] != value for name, value in values.items() if name in own):
            return False
        return all(self._holds(p, {**own, **values}) for p in predicates)


def from_tree(shape: JoinShape, tree: TreeNode, database: Database, holds: Holds) -> Rows:
    """Return the result of a query, enumerated from the reducts of a tree of its shape."""
    return Reducts(tree, shape.query, database, holds).enumerated(shape.query.output)


def _joined(parts: Sequence[tuple[Edge, Rows]]) -> Iterator[tuple[Values, int]]:
    """Yield the natural join of rows over variables, with multiplicities."""
    if not parts:
        yield {}, 1
        return
    (variables, rows), *rest = parts
    for values, count in _joined(rest):
        for row, times in rows.items():
            mine = dict(zip(sorted(variables), row, strict=True))
            if all(values.get(name, value) == value for name, value in mine.items()):
                yield {**values, **mine}, count * times


def _row(values: Values, variables: Edge) -> tuple[int, ...]:
    return tuple(values[name] for name in sorted(variables))
