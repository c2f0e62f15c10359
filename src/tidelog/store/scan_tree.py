"""A scan tree: rows in the order of their values, and partial results of aggregates over them.

For an associative operation the partial results of a tree's nodes give the result over any interval
of rows from O(log n) of them, and a changed row updates only those on the way from it to the root
(Veldhuizen, "Incremental maintenance for leapfrog triejoin", 3.1):

    a1 + .. + a7  =  A14 + A56 + a7         where  A14 = A12 + A34,  A12 = a1 + a2,  ..

Rows are combined strictly from left to right, so the operation need not be commutative. It need not
have an inverse either: a deletion subtracts nothing from a result.

This one is a B-tree of Python objects whose nodes never change: a change makes new nodes from the
row to the root and shares all others. So an abort only goes back to the root that the epoch began
with. Partial results are computed when an interval first needs them, and cached in their nodes.
Nodes that span several groups are never evaluated, and cost nothing; and an operation that fails,
fails where its result is needed.

It is for operations and orders that only Python knows: texts, records, user-given functions. What
kernels can add up and compare is in store/run_tree.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

_MOST = 16  # entries of a node
_LEAST = 4  # a node with fewer is merged with its neighbour

Key: TypeAlias = tuple[Any, ...]
NOTHING: Any = object()  # the result over no rows


class _Top:
    """Larger than any value, so that (prefix.., TOP) is behind all keys with that prefix."""

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return self is other

    def __gt__(self, other: object) -> bool:
        return self is not other

    def __ge__(self, other: object) -> bool:
        return True


TOP: Any = _Top()


class ScanOperation(Protocol):
    """An associative operation, as a tree applies it: to values, and to partial results."""

    def of_values(self, values: Sequence[Any]) -> Any:
        """Return the partial result of one or more values, in their order."""

    def of_partials(self, partials: Sequence[Any]) -> Any:
        """Return the partial result of one or more partial results, in their order."""


class _Leaf:
    __slots__ = ("keys", "partials", "size", "values")

    def __init__(self, keys: list[Key], values: list[Any]) -> None:
        self.keys, self.values = keys, values
        self.size: int = len(keys)
        self.partials: dict[ScanOperation, Any] | None = None

    def partial(self, scan: ScanOperation) -> Any:
        partials = self.partials
        if partials is None:
            partials = self.partials = {}
        if scan not in partials:
            partials[scan] = scan.of_values(self.values)
        return partials[scan]


class _Inner:
    __slots__ = ("children", "keys", "partials", "size")

    def __init__(self, children: list[_Node]) -> None:
        self.children = children
        self.keys: list[Key] = [child.keys[0] for child in children]
        self.size: int = sum([child.size for child in children])
        self.partials: dict[ScanOperation, Any] | None = None

    def partial(self, scan: ScanOperation) -> Any:
        partials = self.partials
        if partials is None:
            partials = self.partials = {}
        if scan not in partials:
            partials[scan] = scan.of_partials([child.partial(scan) for child in self.children])
        return partials[scan]


_Node: TypeAlias = _Leaf | _Inner


@dataclass(frozen=True)
class _TreeChanges:
    """Keys that change, sorted, each with its new value, or NOTHING for a deleted row."""

    keys: Sequence[Key]
    values: Sequence[Any]


class ScanTree:
    """Rows by key, each with the value that is aggregated; keys are unique.

    >>> class Concat:
    ...     of_values = of_partials = staticmethod("".join)
    >>> tree = ScanTree()
    >>> tree.change([((1, 2), "b"), ((1, 1), "a"), ((2, 1), "c")], [])
    >>> tree.fold((1,), (1, TOP), Concat())
    'ab'
    """

    def __init__(self) -> None:
        self._root: _Node | None = None
        self._before: list[_Node | None] = []  # the root before the epoch, once it has changed

    def __len__(self) -> int:
        return 0 if self._root is None else self._root.size

    def __iter__(self) -> Iterator[tuple[Key, Any]]:
        yield from _entries(self._root)

    def change(self, inserted: Iterable[tuple[Key, Any]], deleted: Iterable[Key]) -> None:
        """Add rows, and remove some that are here: O(log n) for each.

        A row that is both removed and added has its new value afterwards.
        """
        changes: dict[Key, Any] = dict.fromkeys(deleted, NOTHING)
        changes.update(inserted)
        if not changes:
            return
        if not self._before:
            self._before.append(self._root)
        keys = sorted(changes)
        pending = _TreeChanges(keys, [changes[key] for key in keys])
        root = _Leaf([], []) if self._root is None else self._root
        nodes = _changed(root, pending, 0, len(keys))
        while len(nodes) > 1:
            nodes = list(map(_Inner, _parts(nodes)))
        top = nodes[0] if nodes else None
        while isinstance(top, _Inner) and len(top.children) == 1:
            top = top.children[0]
        self._root = top

    def fold(self, low: Key, high: Key, scan: ScanOperation) -> Any:
        """Return the partial result over the rows from `low` up to but without `high`: O(log n).

        NOTHING if there are no such rows.
        """
        found: list[Any] = []
        if self._root is not None:
            _collect(self._root, low, high, scan, found)
        if not found:
            return NOTHING
        return found[0] if len(found) == 1 else scan.of_partials(found)

    # --- the end of an epoch ---

    def commit(self) -> None:
        """Keep what has changed."""
        self._before.clear()

    def abort(self) -> None:
        """Put everything back as it was at the last commit."""
        if self._before:
            self._root = self._before.pop()

    def check(self) -> None:
        """Assert that the tree is balanced, in order, and its nodes know their sizes and keys."""
        keys = [key for key, _ in self]
        assert len(keys) == len(self), f"{len(keys)} rows, not {len(self)}"
        for one, next_ in pairwise(keys):
            assert one < next_, f"{one} is before {next_}"
        if self._root is not None:
            _check_node(self._root, is_root=True)


def _entries(node: _Node | None) -> Iterator[tuple[Key, Any]]:
    match node:
        case _Leaf():
            yield from zip(node.keys, node.values, strict=True)
        case _Inner():
            for child in node.children:
                yield from _entries(child)


def _changed(node: _Node, changes: _TreeChanges, start: int, stop: int) -> list[_Node]:
    """Return what takes the place of a node after changes[start:stop]: nodes of its height."""
    if isinstance(node, _Leaf):
        return _changed_leaf(node, changes, start, stop)
    children: list[_Node] = []
    last = len(node.children) - 1
    for i, child in enumerate(node.children):
        # What is before the first key goes to the first child, and so on for all others.
        end = stop if i == last else bisect_left(changes.keys, node.keys[i + 1], start, stop)
        if start == end:
            children.append(child)
        else:
            children += _changed(child, changes, start, end)
        start = end
    children = _filled(children)
    return [_Inner(part) for part in _parts(children)]


def _changed_leaf(leaf: _Leaf, changes: _TreeChanges, start: int, stop: int) -> list[_Node]:
    held = dict(zip(leaf.keys, leaf.values, strict=True))
    for key, value in zip(changes.keys[start:stop], changes.values[start:stop], strict=True):
        if value is NOTHING:
            del held[key]
        else:
            held[key] = value
    keys = sorted(held)
    values = [held[key] for key in keys]
    return [_Leaf(*part) for part in zip(_parts(keys), _parts(values), strict=True)]


def _parts(entries: list[Any]) -> list[list[Any]]:
    """Return the entries in as few parts as a node's limit allows, of about equal sizes."""
    n = len(entries)
    count = -(-n // _MOST)
    bounds = [n * i // count for i in range(count + 1)] if count else [0]
    return [entries[a:b] for a, b in pairwise(bounds)]


def _filled(nodes: list[_Node]) -> list[_Node]:
    """Return neighbours of one height with those merged that have become too small."""
    filled: list[_Node] = []
    for node in nodes:
        if filled and (_width(node) < _LEAST or _width(filled[-1]) < _LEAST):
            filled += _merged(filled.pop(), node)
        else:
            filled.append(node)
    return filled


def _width(node: _Node) -> int:
    return len(node.keys)


def _merged(a: _Node, b: _Node) -> list[_Node]:
    """Return the entries of two neighbours in one node, or in two of about equal sizes."""
    if isinstance(a, _Leaf):
        assert isinstance(b, _Leaf)
        keys, values = _parts(a.keys + b.keys), _parts(a.values + b.values)
        return [_Leaf(*part) for part in zip(keys, values, strict=True)]
    assert isinstance(b, _Inner)
    return [_Inner(part) for part in _parts(_filled(a.children + b.children))]


def _collect(node: _Node, low: Key, high: Key, scan: ScanOperation, found: list[Any]) -> None:
    """Append the partial results of the largest parts of the tree that are within the interval."""
    if isinstance(node, _Leaf):
        first, last = bisect_left(node.keys, low), bisect_left(node.keys, high)
        if first == 0 and last == len(node.keys):
            found.append(node.partial(scan))
        elif first < last:
            found.append(scan.of_values(node.values[first:last]))
        return
    # The children between the two that the bounds fall into are within the interval as a whole.
    first = max(0, bisect_left(node.keys, low) - 1)
    last = bisect_left(node.keys, high)
    if first == 0 and last == len(node.keys) and low <= node.keys[0] and _last_key(node) < high:
        found.append(node.partial(scan))
        return
    for i in range(first, last):
        child = node.children[i]
        if first < i < last - 1:
            found.append(child.partial(scan))
        else:
            _collect(child, low, high, scan, found)


def _last_key(node: _Node) -> Key:
    while isinstance(node, _Inner):
        node = node.children[-1]
    return node.keys[-1]


def _check_node(node: _Node, *, is_root: bool = False) -> int:
    """Assert that a node is sound; return its height."""
    width = _width(node)
    assert width <= _MOST, f"a node has {width} entries"
    assert is_root or width >= _LEAST, f"a node has only {width} entries"
    if isinstance(node, _Leaf):
        assert width == len(node.values) == node.size > 0, "keys and values do not fit"
        return 0
    assert width == len(node.children) > 1 or not is_root, "the root has one child"
    assert node.keys == [child.keys[0] for child in node.children], "keys are not the first ones"
    assert node.size == sum(child.size for child in node.children), "the size is wrong"
    (height,) = {_check_node(child) for child in node.children}
    return height + 1
