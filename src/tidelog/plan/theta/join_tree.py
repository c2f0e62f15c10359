"""Generalized join trees: the reduction of a query as the construction of a tree (Algorithm 3).

In a generalized join tree (Definition 1)

    - the leaves are the atoms of the query,
    - an inner node is a set of variables that one of its children contains, its *guard*,
    - the nodes that have a variable are connected,
    - a predicate is on an edge from a parent to a child that together have its variables.

A *connex* set N has the root and is connected. The pair (T, N) is compatible with a query if the
variables of N are exactly its output. Every operation on the triplet of a query adds nodes to a
forest. What are roots when the first stage ends, and their ancestors, are N:

    stage 1    reduce (H, out, preds)           what is left is the frontier of N
    stage 2    reduce (H, {}, preds)            empty: the query is acyclic
               the frontier's variables = out:  it is free-connex
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tidelog.plan.theta.query import ThetaQuery
from tidelog.plan.theta.triplet import (
    Absorb,
    DropFilter,
    Edge,
    Isolate,
    Operation,
    ThetaPredicate,
    Triplet,
)

Choose = Callable[[Sequence[Operation]], Operation]
"""Chooses the next operation. The verdict does not depend on it; the tree may."""


@dataclass(frozen=True)
class TreeEdge:
    """A child, and the predicates between it and its parent."""

    child: TreeNode
    predicates: frozenset[ThetaPredicate] = frozenset()


@dataclass(frozen=True)
class TreeNode:
    """A node of a join tree: an atom, or a set of variables."""

    variables: Edge
    edges: tuple[TreeEdge, ...] = ()
    atom: int | None = None
    """The number of the atom, for a leaf."""
    is_connex: bool = field(default=False, compare=False)
    """Whether the node is in N."""

    def nodes(self) -> Iterator[TreeNode]:
        """Yield this node and all below it."""
        yield self
        for edge in self.edges:
            yield from edge.child.nodes()


@dataclass(frozen=True)
class JoinShape:
    """What the analysis says about a query."""

    query: ThetaQuery
    tree: TreeNode | None
    """None for a cyclic query."""
    frontier: Edge
    """The variables of N: for a query that is not free-connex, the least output that is."""
    residue: Triplet
    """What could not be reduced; empty for an acyclic query."""

    @property
    def is_acyclic(self) -> bool:
        """Whether there is a join tree."""
        return self.tree is not None

    @property
    def is_free_connex(self) -> bool:
        """Whether the result can be enumerated from the tree, without duplicates."""
        return self.is_acyclic and self.frontier == self.query.output

    @property
    def cyclic_predicates(self) -> tuple[ThetaPredicate, ...]:
        """The predicates of the residue, which take part in the cycle."""
        return tuple(sorted(self.residue.predicates, key=lambda p: p.number))


def first(operations: Sequence[Operation]) -> Operation:
    """Choose the first operation."""
    return operations[0]


def analyse_joins(query: ThetaQuery, choose: Choose = first) -> JoinShape:
    """Decide whether a query is acyclic and free-connex, and make a tree for it."""
    forest = _Forest(query)
    triplet = _reduced(forest, query.triplet, choose)
    frontier = frozenset().union(*triplet.edges)
    forest.note_connex()
    residue = _reduced(forest, triplet.residual(), choose)
    tree = forest.joined() if residue.is_empty else None
    return JoinShape(query, tree, frontier, residue)


def _reduced(forest: _Forest, triplet: Triplet, choose: Choose) -> Triplet:
    """Return the normal form of a triplet; the forest follows."""
    while operations := list(triplet.operations()):
        operation = choose(operations)
        forest.follow(operation)
        triplet = triplet.after(operation)
    return triplet


class _Forest:
    """Trees, of which those with the same variables at the root stand for one hyperedge."""

    def __init__(self, query: ThetaQuery) -> None:
        self._roots = [
            TreeNode(variables, atom=number) for number, variables in enumerate(query.atoms)
        ]

    def note_connex(self) -> None:
        """Take the present roots as the frontier of N."""
        self._roots = [
            TreeNode(root.variables, root.edges, root.atom, is_connex=True) for root in self._roots
        ]

    def follow(self, operation: Operation) -> None:
        """Add the nodes of an operation."""
        match operation:
            case Isolate(edge, variables):
                root = self._taken(edge)
                self._add(TreeNode(edge - variables, (TreeEdge(root),)))
            case Absorb(edge, into, predicates):
                absorbed, guard = self._taken(edge), self._taken(into)
                self._add(TreeNode(into, (TreeEdge(guard), TreeEdge(absorbed, predicates))))
            case DropFilter(edge, predicates):
                roots = [root for root in self._roots if root.variables == edge]
                self._roots = [root for root in self._roots if root.variables != edge]
                # On one edge they are tested, whichever it is: all children have the variables.
                edges = [TreeEdge(roots[0], predicates), *map(TreeEdge, roots[1:])]
                self._add(TreeNode(edge, tuple(edges)))

    def joined(self) -> TreeNode:
        """Return one tree with all trees. Their roots have no variables any more."""
        assert all(not root.variables for root in self._roots)
        if len(self._roots) == 1:
            return self._roots[0]
        return self._above(frozenset(), self._roots)

    def _taken(self, edge: Edge) -> TreeNode:
        """Take the trees of a hyperedge out of the forest, as one tree."""
        roots = [root for root in self._roots if root.variables == edge]
        self._roots = [root for root in self._roots if root.variables != edge]
        return roots[0] if len(roots) == 1 else self._above(edge, roots)

    def _above(self, edge: Edge, roots: Sequence[TreeNode]) -> TreeNode:
        node = TreeNode(edge, tuple(map(TreeEdge, roots)))
        return _with_ancestors(node)

    def _add(self, node: TreeNode) -> None:
        self._roots.append(_with_ancestors(node))


def _with_ancestors(node: TreeNode) -> TreeNode:
    """Return a node that is in N if a child is: N has all ancestors of its frontier."""
    is_connex = any(edge.child.is_connex for edge in node.edges)
    return TreeNode(node.variables, node.edges, node.atom, is_connex=is_connex)
