"""Components, paths and classes against networkx, on random graphs."""

import networkx as nx

from tests.seeds import seeded
from tidelog.logic.graph import UnionFind, components, reachable, shortest_path


def test_components_are_those_of_networkx_in_an_order_of_need() -> None:
    for number in range(200):
        rng = seeded("graphs", number)
        size = rng.randrange(1, 12)
        names = [f"r{i}" for i in range(size)]
        needs = {name: [rng.choice(names) for _ in range(rng.randrange(0, 3))] for name in names}
        found = components(needs)
        graph = nx.DiGraph((name, other) for name in names for other in needs[name])
        graph.add_nodes_from(names)
        expected = {frozenset(group) for group in nx.strongly_connected_components(graph)}
        assert {frozenset(group) for group in found} == expected, f"graph {number}"
        done: set[str] = set()
        for group in found:
            done |= set(group)
            assert all(set(needs[name]) <= done for name in group), f"graph {number}"


def test_paths_and_what_is_reachable_are_those_of_networkx() -> None:
    for number in range(200):
        rng = seeded("paths", number)
        names = [f"r{i}" for i in range(rng.randrange(1, 12))]
        edges = {name: [rng.choice(names) for _ in range(rng.randrange(0, 3))] for name in names}
        graph = nx.DiGraph((name, other) for name in names for other in edges[name])
        graph.add_nodes_from(names)
        start = rng.choice(names)
        found = reachable(edges, start)
        assert found == nx.descendants(graph, start) | {start}, f"graph {number}"
        for end in found:
            path = shortest_path(edges, start, end)
            assert (path[0], path[-1]) == (start, end), f"graph {number}"
            assert nx.is_path(graph, path), f"graph {number}"
            assert len(path) == len(nx.shortest_path(graph, start, end)), f"graph {number}"


def test_classes_are_the_components_of_an_undirected_graph() -> None:
    for number in range(200):
        rng = seeded("classes", number)
        pairs = [(rng.randrange(12), rng.randrange(12)) for _ in range(rng.randrange(0, 12))]
        classes = UnionFind[int]()
        for a, b in pairs:
            classes.union(a, b)
        graph = nx.Graph(pairs)
        graph.add_nodes_from(range(12))
        for component in nx.connected_components(graph):
            assert len({classes.find(item) for item in component}) == 1, f"graph {number}"
        assert len({classes.find(i) for i in range(12)}) == nx.number_connected_components(graph)


def test_a_long_chain_does_not_recurse() -> None:
    needs = {f"r{i}": [f"r{i + 1}"] for i in range(20_000)}
    needs["r20000"] = []
    assert components(needs)[0] == ("r20000",)
