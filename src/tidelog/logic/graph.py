"""Strongly connected components, in an order in which each comes after those it depends on.

networkx has this, and is used where graphs are looked into (logic/stratify.py). But every command
needs this one function, and importing networkx alone takes as long as a command may take to start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush


def components(needs: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Return the components of a graph, what is needed first.

    `needs` has every node, with the nodes it needs. Among the possible orders the one closest to
    the order of the nodes is taken, for the components as for the nodes of each.

    >>> components({"a": ["b"], "b": ["a", "c"], "c": [], "d": []})
    [('c',), ('a', 'b'), ('d',)]
    """
    place = {node: i for i, node in enumerate(needs)}
    groups = [tuple(sorted(group, key=place.__getitem__)) for group in _tarjan(needs)]
    group_of = {node: i for i, group in enumerate(groups) for node in group}
    sorter: TopologicalSorter[int] = TopologicalSorter()
    for node, needed in needs.items():
        own = group_of[node]
        sorter.add(own, *{group_of[other] for other in needed} - {own})
    sorter.prepare()
    first = [place[group[0]] for group in groups]
    ready = [(first[i], i) for i in sorter.get_ready()]
    heapify(ready)
    ordered = []
    while ready:
        _, i = heappop(ready)
        ordered.append(groups[i])
        sorter.done(i)
        for following in sorter.get_ready():
            heappush(ready, (first[following], following))
    return ordered


def _tarjan(needs: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the strongly connected components, by Tarjan's algorithm without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    on_stack: set[str] = set()
    stack: list[str] = []
    found: list[list[str]] = []
    for root in needs:
        if root in index:
            continue
        work = [(root, iter(needs[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(needs[other])))
                    break
                if other in on_stack:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    group = []
                    while True:
                        member = stack.pop()
                        on_stack.remove(member)
                        group.append(member)
                        if member == node:
                            break
                    found.append(group)
    return found
