"""The largest acyclic part of a query: against all others, and by the rows of its tree."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest

from tests.plan.theta.evaluating import arbitrary, evaluated, from_tree, random_database
from tests.plan.theta.queries import query, random_query
from tests.samples import sample
from tests.seeds import seeded
from tidelog.plan.theta import acyclic_part
from tidelog.plan.theta.acyclic_part import AcyclicPart, largest_acyclic_part
from tidelog.plan.theta.binary import binary
from tidelog.plan.theta.drawing import drawn
from tidelog.plan.theta.join_tree import analyse_joins
from tidelog.plan.theta.query import ThetaQuery

CASES = sample(300, 3000)


def many_predicates(rng: Random) -> ThetaQuery:
    """Return a query of small atoms with many predicates between them."""
    atoms = rng.sample(["a", "b", "c", "d", "ae", "bf", "cg", "ab"], rng.randint(3, 5))
    used = sorted(set("".join(atoms)))
    pairs = ["".join(rng.sample(used, 2)) for _ in range(rng.randint(3, 7))]
    output = rng.sample(used, rng.randint(0, len(used)))
    return query(" ".join(atoms), "".join(output), " ".join(pairs))


def fewest_left_out(given: ThetaQuery) -> tuple[int, int] | None:
    """Return how many predicates an acyclic part lacks, and how many variables it enumerates.

    Both are the smallest: all sets of predicates are tried.
    """
    for size in range(len(given.predicates) + 1):
        frontiers = []
        for left_out in combinations(given.predicates, size):
            kept = tuple(p for p in given.predicates if p not in left_out)
            output = given.output.union(*(p.variables for p in left_out))
            shape = analyse_joins(replace(given, predicates=kept, output=output))
            if shape.is_acyclic:
                frontiers.append(len(shape.frontier))
        if frontiers:
            return size, min(frontiers)
    return None


@pytest.mark.parametrize("most_tried", [2_000, 1], ids=["all", "greedy"])
def test_random_queries(most_tried: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acyclic_part, "_MOST_TRIED", most_tried)
    rng = seeded("acyclic parts")
    seen: Counter[str] = Counter()
    for _ in range(CASES):
        given = rng.choice([random_query, many_predicates])(rng)
        part = largest_acyclic_part(given)
        fewest = fewest_left_out(given)
        assert (part is None) == (fewest is None)
        if part is None:
            seen["none"] += 1
            continue
        assert part.shape.tree is not None
        assert set(part.filters) | set(part.shape.query.predicates) == set(given.predicates)
        seen[f"{len(part.filters)} left out"] += 1
        if most_tried == 1:
            assert fewest is not None
            seen["more than needed"] += len(part.filters) > fewest[0]
        else:
            assert (len(part.filters), len(part.shape.frontier)) == fewest
        _check_rows(given, part, rng)
    print(dict(seen))
    assert seen["0 left out"] > CASES // 10
    assert seen["1 left out"] > CASES // 30
    assert seen["2 left out"] > 0


def _check_rows(given: ThetaQuery, part: AcyclicPart, rng: Random) -> None:
    """Assert that the rows of the tree, filtered, are those of the query."""
    assert part.shape.tree is not None
    database = random_database(given, rng)
    extended = replace(part.shape.query, output=part.shape.frontier)
    shape = replace(part.shape, query=extended)
    rows = from_tree(shape, binary(part.shape.tree), database, arbitrary)
    names = sorted(part.shape.frontier)
    found: Counter[tuple[int, ...]] = Counter()
    for row, count in rows.items():
        values = dict(zip(names, row, strict=True))
        if all(arbitrary(predicate, values) for predicate in part.filters):
            found[tuple(values[name] for name in sorted(given.output))] += count
    assert found == evaluated(given, database, arbitrary)


def test_the_fraud_query_leaves_out_one_of_its_bounds() -> None:
    part = largest_acyclic_part(query("x y z", "xyz", "xy yz xz"))
    assert part is not None
    assert [p.text for p in part.filters] == ["xz"]
    assert part.shape.is_free_connex


def test_a_triangle_has_no_acyclic_part() -> None:
    assert largest_acyclic_part(query("xy yz zx", "xyz", "xy")) is None


def test_drawings() -> None:
    title, *tree = drawn(analyse_joins(query("x y z", "xyz", "xy yz xz")))
    assert title == (
        "cyclic through xy, yz, xz: its tree is without xz, by which its rows are filtered;"
        " * marks the part that has the output"
    )
    assert sum("r" in line for line in tree) == 3
    assert drawn(analyse_joins(query("xy yz zx", "xyz"))) == [
        "cyclic through its equal variables: there is no join tree"
    ]
