"""Components against networkx, on random graphs."""

import random

import networkx as nx

from tidelog.logic.graph import components


def test_components_are_those_of_networkx_in_an_order_of_need() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        size = rng.randrange(1, 12)
        names = [f"r{i}" for i in range(size)]
        needs = {name: [rng.choice(names) for _ in range(rng.randrange(0, 3))] for name in names}
        found = components(needs)
        graph = nx.DiGraph((name, other) for name in names for other in needs[name])
        graph.add_nodes_from(names)
        expected = {frozenset(group) for group in nx.strongly_connected_components(graph)}
        assert {frozenset(group) for group in found} == expected, f"seed {seed}"
        done: set[str] = set()
        for group in found:
            done |= set(group)
            assert all(set(needs[name]) <= done for name in group), f"seed {seed}"


def test_a_long_chain_does_not_recurse() -> None:
    needs = {f"r{i}": [f"r{i + 1}"] for i in range(20_000)}
    needs["r20000"] = []
    assert components(needs)[0] == ("r20000",)
