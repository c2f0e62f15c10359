"""Join trees against their definitions, and the verdicts against other ways to find them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.plan.theta.queries import query, random_query
from tests.samples import sample
from tests.seeds import seeded
from tidelog.plan.theta.binary import binary
from tidelog.plan.theta.drawing import drawn
from tidelog.plan.theta.join_tree import JoinShape, TreeNode, analyse_joins
from tidelog.plan.theta.triplet import Edge, Operation

CASES = sample(400, 5000)


def check(tree: TreeNode, shape: JoinShape) -> None:
    """Assert that a tree is one for the query, by Definitions 1, 2 and 4."""
    wanted = shape.query
    nodes = list(tree.nodes())
    leaves = Counter(node.atom for node in nodes if node.atom is not None)
    assert leaves == Counter(range(len(wanted.atoms)))
    on_edges: Counter[int] = Counter()
    for node in nodes:
        if node.atom is not None:
            assert not node.edges
            assert node.variables == wanted.atoms[node.atom]
            continue
        assert any(node.variables <= edge.child.variables for edge in node.edges), "no guard"
        for edge in node.edges:
            for predicate in edge.predicates:
                assert predicate.variables <= node.variables | edge.child.variables
                on_edges[predicate.number] += 1
            assert node.is_connex or not edge.child.is_connex, "N is not connected"
        assert len({edge.child.is_connex for edge in node.edges}) == 1, "not sibling-closed"
    assert on_edges == Counter(p.number for p in wanted.predicates)
    for variable in frozenset().union(*wanted.atoms):
        with_it = {id(node) for node in nodes if variable in node.variables}
        inner = [(n, e.child) for n in nodes for e in n.edges]
        linked = sum(id(n) in with_it and id(c) in with_it for n, c in inner)
        assert linked == len(with_it) - 1, f"{variable} is not connected"
    assert tree.is_connex
    connex = frozenset().union(*(node.variables for node in nodes if node.is_connex))
    assert connex == shape.frontier
    assert wanted.output <= connex
    assert shape.is_free_connex == (connex == wanted.output)


def test_random_queries() -> None:
    rng = seeded("join trees")
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        shape = analyse_joins(random_query(rng))
        seen["acyclic" if shape.is_acyclic else "cyclic"] += 1
        seen["free-connex"] += shape.is_free_connex
        if shape.tree is None:
            assert not shape.residue.is_empty
            continue
        check(shape.tree, shape)
        small = binary(shape.tree)
        assert all(len(node.edges) <= 2 for node in small.nodes())
        check(small, shape)
    assert min(seen.values()) > CASES // 20, seen


def test_the_order_of_operations_does_not_matter() -> None:
    rng = seeded("confluence")

    def choose(operations: Sequence[Operation]) -> Operation:
        return rng.choice(operations)

    for _ in range(CASES // 4):
        drawn_query = random_query(rng)
        one = analyse_joins(drawn_query)
        for _ in range(3):
            other = analyse_joins(drawn_query, choose)
            assert (other.residue, other.frontier) == (one.residue, one.frontier)
            if other.tree is not None:
                check(other.tree, other)


def is_acyclic_by_trees(atoms: Sequence[Edge]) -> bool:
    """Return whether some tree over the atoms connects every variable: tries them all."""
    count = len(atoms)
    pairs = list(itertools.combinations(range(count), 2))
    return any(
        all(
            sum(v in atoms[a] and v in atoms[b] for a, b in chosen)
            == sum(v in atom for atom in atoms) - 1
            for v in frozenset().union(*atoms)
        )
        for chosen in itertools.combinations(pairs, count - 1)
        if _is_tree(count, chosen)
    )


def _is_tree(count: int, chosen: Sequence[tuple[int, int]]) -> bool:
    reached = {0}
    for _ in chosen:
        reached |= {b for a, b in chosen if a in reached} | {a for a, b in chosen if b in reached}
    return len(reached) == count


def test_without_predicates_it_is_the_classical_notion() -> None:
    rng = seeded("classical acyclicity")
    seen = set()
    for _ in range(CASES // 4):
        atoms = random_query(rng).atoms
        shape = analyse_joins(query(" ".join("".join(sorted(atom)) for atom in atoms)))
        assert shape.is_acyclic == is_acyclic_by_trees(atoms), atoms
        seen.add(shape.is_acyclic)
    assert seen == {True, False}


@pytest.mark.parametrize(
    ("given", "acyclic", "free_connex"),
    [
        (query("xy yz zx", "xyz"), False, False),  # the triangle
        (query("x y", "xy", "xy"), True, True),  # x < y
        (query("x y z", "xyz", "xy yz"), True, True),  # x < y < z
        (query("x y z", "xyz", "xy yz xz"), False, False),  # pairwise bounds, as in the fraud query
        (query("xy yz", "xz"), True, False),
        (query("xy yz", "xy"), True, True),
        (query("xy xy", "xy"), True, True),
        (query("abc ad", "abcd", "bd"), True, True),
    ],
)
def test_known_queries(given: object, acyclic: bool, free_connex: bool) -> None:
    shape = analyse_joins(given)  # type: ignore[arg-type]
    assert (shape.is_acyclic, shape.is_free_connex) == (acyclic, free_connex)


def test_drawings() -> None:
    assert drawn(analyse_joins(query("at au", "atu", "tu"))) == [
        "acyclic, free-connex; * marks the part that has the output",
        "* {}",
        "└── * {a, u}",
        "    ├── * r1(a, u)",
        "    └── * r0(a, t)   tu",
    ]
    (title, *_) = drawn(analyse_joins(query("xy yz", "xz")))
    assert title == (
        "acyclic, not free-connex: the tree has to enumerate y, too;"
        " * marks the part that has the output"
    )
