"""The paper's queries and trees: sections 2 to 4, figures 2 to 7.

The copy of the paper has lost its formulas. The query of Example 2 and section 4 is the one that
its text describes: `r` and `s` share y and are compared by x < z, `s` and `t` by w < u, and the
root of the tree in figure 6 has y and w. The numbers of figures 6 and 7 are lost as well; those
here are chosen so that the update does what the text says.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.plan.theta.evaluating import (
    Reducts,
    arbitrary,
    evaluated,
    from_tree,
    less,
    random_database,
)
from tests.plan.theta.queries import query, random_query
from tests.samples import sample
from tests.seeds import seeded
from tidelog.plan.theta.binary import binary
from tidelog.plan.theta.drawing import drawn
from tidelog.plan.theta.join_tree import TreeEdge, TreeNode, analyse_joins
from tidelog.plan.theta.query import ThetaQuery
from tidelog.plan.theta.triplet import ThetaPredicate

CASES = sample(300, 3000)
X_LESS_Z = ThetaPredicate("x < z", frozenset("xz"), 0)
W_LESS_U = ThetaPredicate("w < u", frozenset("wu"), 1)


def example(output: str) -> ThetaQuery:
    """Return the query of Example 2 with an output."""
    return ThetaQuery(
        (frozenset("xy"), frozenset("yzw"), frozenset("uv")),
        frozenset(output),
        (X_LESS_Z, W_LESS_U),
        ("r(x, y)", "s(y, z, w)", "t(u, v)"),
    )


@pytest.mark.parametrize(
    ("output", "free_connex"),
    [("xyzwuv", True), ("yzwu", True), ("yw", True), ("", True), ("xy", True), ("xu", False)],
)
def test_example_3(output: str, free_connex: bool) -> None:
    shape = analyse_joins(example(output))
    assert shape.is_acyclic
    assert shape.is_free_connex == free_connex


def figure_2() -> TreeNode:
    """Return the tree of section 4: {y, w} above {y, z, w} with r and s, and {u} with t."""
    r, s, t = (TreeNode(v, atom=n) for n, v in enumerate(example("").atoms))
    middle = TreeNode(
        frozenset("yzw"), (TreeEdge(s), TreeEdge(r, frozenset({X_LESS_Z}))), is_connex=True
    )
    right = TreeNode(frozenset("u"), (TreeEdge(t),), is_connex=True)
    edges = (TreeEdge(middle), TreeEdge(right, frozenset({W_LESS_U})))
    return TreeNode(frozenset("yw"), edges, is_connex=True)


def test_the_analysis_finds_the_same_connex_part() -> None:
    shape = analyse_joins(example("yzwu"))
    assert shape.tree is not None
    # The frontier of N has {y, z, w} and {u}, as in figure 2. Above it, the second stage of the
    # reduction removes one variable after the other.
    frontier = [
        node
        for node in shape.tree.nodes()
        if node.is_connex and not any(edge.child.is_connex for edge in node.edges)
    ]
    assert {node.variables for node in frontier} == {frozenset("yzw"), frozenset("u")}
    assert drawn(shape) == [
        "acyclic, free-connex; * marks the part that has the output",
        "* {}",
        "└── * {w}",
        "    ├── * {w}",
        "    │   └── * {w, y, z}",
        "    │       ├── s(y, z, w)",
        "    │       └── r(x, y)   x < z",
        "    └── * {u}   w < u",
        "        └── t(u, v)",
    ]


def rows(*values: tuple[int, ...]) -> Counter[tuple[int, ...]]:
    return Counter(values)


def test_figures_6_and_7() -> None:
    """Two rows come: one to r, which reaches the root, and one to t."""
    given = example("yzwu")
    # Rows are in the order of the variables' names: r(x, y), s(w, y, z), t(u, v).
    before = [
        rows((2, 4), (5, 4), (9, 9)),
        rows((3, 4, 3), (8, 4, 6), (3, 7, 9)),
        rows((5, 1), (5, 2), (2, 2)),
    ]
    tree = figure_2()
    (middle, right) = (edge.child for edge in tree.edges)
    held = Reducts(tree, given, before, less)
    assert held.of(middle) == Counter({(3, 4, 3): 1, (8, 4, 6): 2})
    assert held.of(right) == Counter({(5,): 2, (2,): 1})
    assert held.of(tree) == Counter({(3, 4): 2})  # 8 is less than no u
    assert held.enumerated(given.output) == Counter({(5, 3, 4, 3): 2})
    assert held.enumerated(given.output) == evaluated(given, before, less)

    to_r, to_t = rows((5, 7), (5, 7)), rows((9, 1), (9, 2), (9, 3))
    after = [before[0] + to_r, before[1], before[2] + to_t]
    new = Reducts(tree, given, after, less)
    changed_middle, changed_right = Counter(new.of(middle)), Counter(new.of(right))
    changed_middle.subtract(held.of(middle))
    changed_right.subtract(held.of(right))
    assert +changed_middle == Counter({(3, 7, 9): 2})
    assert +changed_right == Counter({(9,): 3})
    assert new.of(tree) == Counter({(3, 4): 5, (8, 4): 6, (3, 7): 10})
    assert new.enumerated(given.output) == evaluated(given, after, less)
    # Reducts are linear: a node has no more rows than the atom that guards it.
    for node in tree.nodes():
        assert len(new.of(node)) <= max(map(len, after))


@pytest.mark.parametrize(
    ("given", "free_connex"),
    [
        # The shapes of section 7: inequalities alone, with equalities, and their projections.
        (query("abc def", "abcdef", "ad"), True),
        (query("abc def", "abcdef", "ad be"), True),
        (query("abc def ghi", "abcdefghi", "ad eg"), True),
        (query("abck defk", "abcdefk", "ad"), True),
        (query("abk cdk efg", "abcdefgk", "ac de"), True),
        (query("abc def", "def", "ad"), True),
        (query("abc def", "bcdef", "ad"), False),
        (query("abc def ghi", "defghi", "ad eg"), True),
        (query("abc def", "be", "ad"), False),
        (query("abc def ghi", "bh", "ad eg"), False),
    ],
)
def test_shapes_of_section_7(given: ThetaQuery, free_connex: bool) -> None:
    shape = analyse_joins(given)
    assert shape.is_acyclic
    assert shape.is_free_connex == free_connex


def test_a_transitive_comparison_is_cyclic() -> None:
    """Bernstein and Goodman call it acyclic; here nothing is known about predicates."""
    assert not analyse_joins(query("ab bc cd", "abcd", "ad")).is_acyclic


def test_results_from_trees() -> None:
    """Enumeration from reducts gives each result with its multiplicity (section 5)."""
    rng = seeded("results from trees")
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        shape = analyse_joins(random_query(rng))
        if shape.tree is None:
            continue
        database = random_database(shape.query, rng)
        expected = evaluated(shape.query, database, arbitrary)
        seen["free-connex" if shape.is_free_connex else "not free-connex"] += 1
        seen["with results"] += bool(expected)
        for tree in (shape.tree, binary(shape.tree)):
            assert from_tree(shape, tree, database, arbitrary) == expected
        frontier = replace(shape.query, output=shape.frontier)
        assert analyse_joins(frontier).is_free_connex
    assert seen["not free-connex"] > CASES // 60
    assert min(seen["free-connex"], seen["with results"]) > CASES // 20
