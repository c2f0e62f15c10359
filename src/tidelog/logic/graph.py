"""Graphs: components, paths, and classes of equal things.

networkx has all of this. But every command needs components, and importing networkx would take as
long as a command may take to start. The rest is a few lines. Tests compare with networkx.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from graphlib import TopologicalSorter
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class UnionFind(Generic[T]):
    """Classes of equal items, built from pairs of equal items.

    >>> classes = UnionFind[str]()
    >>> classes.union("a", "b")
    >>> classes.find("a") == classes.find("b"), classes.find("c")
    (True, 'c')
    """

    def __init__(self) -> None:
        self._parent: dict[T, T] = {}

    def find(self, item: T) -> T:
        """Return the representative of the class of an item."""
        parent = self._parent
        while (above := parent.get(item, item)) != item:
            parent[item] = parent.get(above, above)  # halves the path of the next search
            item = above
        return item

    def union(self, a: T, b: T) -> None:
        """Merge the classes of two items; the representative is that of `b`."""
        a, b = self.find(a), self.find(b)
        if a != b:
            self._parent[a] = b

    def __iter__(self) -> Iterator[T]:
        """Yield the items that are not the representatives of their classes."""
        return iter(self._parent)


def reachable(needs: Mapping[str, Iterable[str]], start: str) -> set[str]:
    """Return a node and all that it needs, directly or through others.

    >>> sorted(reachable({"a": ["b"], "b": ["c"], "c": [], "d": ["a"]}, "a"))
    ['a', 'b', 'c']
    """
    found = {start}
    waiting = [start]
    while waiting:
        new = set(needs[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


def shortest_path(edges: Mapping[str, Iterable[str]], start: str, end: str) -> list[str]:
    """Return the nodes of a shortest path, both ends included; there must be one.

    >>> shortest_path({"a": ["b", "c"], "b": ["d"], "c": ["b"], "d": []}, "a", "d")
    ['a', 'b', 'd']
    """
    before: dict[str, str] = {}
    waiting = deque([start])
    while start != end and end not in before:
        node = waiting.popleft()
        for other in edges[node]:
            if other != start and other not in before:
                before[other] = node
                waiting.append(other)
    path = [end]
    while path[-1] != start:
        path.append(before[path[-1]])
    return path[::-1]


def components(needs: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Return the strongly connected components of a graph, each after those it needs.

    `needs` has every node, with the nodes it needs. Among the possible orders, the result is
    closest to the order of the nodes, both for components and for the nodes of each.

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
