"""Sets of ordinals as trees whose nodes exist once: equal sets are the same node.

A set is a binary radix tree (Okasaki and Gill, "Fast Mergeable Integer Maps", 1998). A leaf is one
element. An inner node tests one bit: the elements below its left child have a 0 there, those below
its right child a 1, and all higher bits agree. So the shape of a tree depends only on its elements,
not on the order in which they were added. A node is looked up by its parts before it is created
(*hash consing*). So equal sets are the same node, and comparing them is comparing two numbers. A
change of one element creates the nodes of one path: at most 65, and about log2(n) for a set of n
elements. All others are shared with the old set.

Nodes are rows of one array. Node 0 is the empty set, and no node is ever changed or removed. Leaves
are in the order of signed ordinals: the sign bit is flipped wherever bits are tested.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.compiling import TRUE, ZERO, helper, kernel

KEY, LEFT, RIGHT, META = range(4)
"""The columns of a node: its smallest element, its children (0: it is a leaf), size and bit."""
SIZE_SHIFT = 6
"""META is the number of elements, shifted, and below it the position of the bit that is tested."""
DEPTH = 66
"""More than the nodes on a path, and more than one changed element can create."""
REBUILD = 8
"""A set is rebuilt when it has at most this many elements for each that changes."""
COUNT, NEEDED = range(2)
"""The entries of `used`: how many nodes there are, and how many more are needed."""

_PLACE = (1 << SIZE_SHIFT) - 1


@njit(cache=True, inline="always")
def _bits(ordinal):
    """Return the bits of an ordinal, so that their unsigned order is that of signed ordinals."""
    return np.uint64(ordinal) ^ np.uint64(1 << 63)


@helper
def _highest(bits):
    """Return the position of the highest bit that is set."""
    place = 0
    for step in (32, 16, 8, 4, 2, 1):
        if bits >> np.uint64(step):
            bits >>= np.uint64(step)
            place += step
    return place


@helper
def _home(key, left, right, mask):
    """Return the slot at which the search for a node begins."""
    mixed = np.uint64(left) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64(right) * np.uint64(0xC2B2AE3D27D4EB4F)
    if left == 0:
        mixed ^= np.uint64(key) * np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xFF51AFD7ED558CCD)
    mixed ^= mixed >> np.uint64(29)
    return np.int64(mixed & np.uint64(mask))


@helper
def _node(nodes, slots, used, key, left, right, meta, may_add):
    """Return the node with these parts; -1 if there is none and none may be created."""
    mask = slots.shape[0] - 1
    at = _home(key, left, right, mask)
    while slots[at] != 0:
        node = slots[at]
        same = nodes[node, LEFT] == left and nodes[node, RIGHT] == right
        if same and (left != 0 or nodes[node, KEY] == key):
            return node
        at = (at + 1) & mask
    if not may_add:
        return -1
    node = used[COUNT]
    used[COUNT] += 1
    nodes[node, KEY] = key
    nodes[node, LEFT] = left
    nodes[node, RIGHT] = right
    nodes[node, META] = meta
    slots[at] = node
    return node


@helper
def _leaf(nodes, slots, used, element, may_add):
    return _node(nodes, slots, used, element, ZERO, ZERO, 1 << SIZE_SHIFT, may_add)


@helper
def _joined(nodes, slots, used, left, right, may_add):
    """Return the union of two sets whose elements differ first in one bit, 0 or 1 by set."""
    key = nodes[left, KEY]
    place = _highest(_bits(key) ^ _bits(nodes[right, KEY]))
    size = (nodes[left, META] >> SIZE_SHIFT) + (nodes[right, META] >> SIZE_SHIFT)
    return _node(nodes, slots, used, key, left, right, (size << SIZE_SHIFT) | place, may_add)


@helper
def _descend(nodes, root, element, path):
    """Follow an element down from a root that is not empty.

    Return the number of nodes on the path, and the node at its end: the leaf of the element, or
    the highest node whose elements all differ from it above the bit that the node tests.
    """
    depth = 0
    node = root
    bits = _bits(element)
    while nodes[node, LEFT] != 0:
        place = np.uint64(nodes[node, META] & _PLACE)
        if ((bits ^ _bits(nodes[node, KEY])) >> place) >> np.uint64(1):
            break
        path[depth] = node
        depth += 1
        node = nodes[node, RIGHT] if (bits >> place) & np.uint64(1) else nodes[node, LEFT]
    return depth, node


@helper
def _ascend(nodes, slots, used, path, depth, node, element):
    """Return the root after the end of a path is replaced by `node`, or removed if that is 0."""
    bits = _bits(element)
    for i in range(depth - 1, -1, -1):
        parent = path[i]
        is_right = (bits >> np.uint64(nodes[parent, META] & _PLACE)) & np.uint64(1)
        sibling = nodes[parent, LEFT] if is_right else nodes[parent, RIGHT]
        if node == 0:
            node = sibling
        elif is_right:
            node = _joined(nodes, slots, used, sibling, node, TRUE)
        else:
            node = _joined(nodes, slots, used, node, sibling, TRUE)
    return node


@helper
def _with(nodes, slots, used, root, element, path):
    """Return the set with one more element."""
    if root == 0:
        return _leaf(nodes, slots, used, element, TRUE)
    depth, node = _descend(nodes, root, element, path)
    if nodes[node, LEFT] == 0 and nodes[node, KEY] == element:
        return root
    leaf = _leaf(nodes, slots, used, element, TRUE)
    if element < nodes[node, KEY]:
        node = _joined(nodes, slots, used, leaf, node, TRUE)
    else:
        node = _joined(nodes, slots, used, node, leaf, TRUE)
    return _ascend(nodes, slots, used, path, depth, node, element)


@helper
def _without(nodes, slots, used, root, element, path):
    """Return the set without one of its elements."""
    if root == 0:
        return root
    depth, node = _descend(nodes, root, element, path)
    if nodes[node, LEFT] != 0 or nodes[node, KEY] != element:
        return root
    return _ascend(nodes, slots, used, path, depth, ZERO, element)


@helper
def _build(nodes, slots, used, elements, n, may_add):
    """Return the set of n sorted, distinct elements: n leaves, n - 1 inner nodes, no others.

    `places[i]` is the bit that separates the tree at `trees[i]` from what follows. On the stack,
    these bits decrease from the bottom to the top. A larger one completes all trees with smaller
    ones.
    """
    trees = np.empty(DEPTH, np.int64)
    places = np.empty(DEPTH, np.int64)
    height = 0
    for i in range(n):
        tree = _leaf(nodes, slots, used, elements[i], may_add)
        place = 64
        if i + 1 < n:
            place = _highest(_bits(elements[i]) ^ _bits(elements[i + 1]))
        while tree > 0 and height > 0 and places[height - 1] < place:
            height -= 1
            tree = _joined(nodes, slots, used, trees[height], tree, may_add)
        if tree < 0:
            return -1
        trees[height] = tree
        places[height] = place
        height += 1
    return trees[0] if n else 0


@helper
def _list(nodes, root, out, start, stack):
    """Write the elements of a set, sorted, from `start` on; return where they end."""
    if root == 0:
        return start
    height = 1
    stack[0] = root
    while height:
        height -= 1
        node = stack[height]
        while nodes[node, LEFT] != 0:
            stack[height] = nodes[node, RIGHT]
            height += 1
            node = nodes[node, LEFT]
        out[start] = nodes[node, KEY]
        start += 1
    return start


@helper
def _merged(held, n, elements, adds, start, stop, out):
    """Write the n sorted elements `held` after some changes; return how many there are."""
    i = 0
    size = 0
    for j in range(start, stop):
        while i < n and held[i] < elements[j]:
            out[size] = held[i]
            size += 1
            i += 1
        if i < n and held[i] == elements[j]:
            i += 1
        if adds[j]:
            out[size] = elements[j]
            size += 1
    while i < n:
        out[size] = held[i]
        size += 1
        i += 1
    return size


@kernel
def change_sets(nodes, slots, used, roots, which, ends, elements, adds, start, scratch):
    """Add and remove elements; return the index of the first that there was no room for.

    Change j adds `elements[j]` to the set `roots[which[j]]`, or removes it. Changes are sorted by
    set, then by element; those of set w end at `ends[w]`. The changed sets are written to `roots`.
    `used[NEEDED]` says how much room is needed.
    """
    path = np.empty(DEPTH, np.int64)
    j = start
    while j < which.shape[0]:
        w = which[j]
        root = roots[w]
        size = nodes[root, META] >> SIZE_SHIFT
        changes = ends[w] - j
        if size <= REBUILD * changes:
            used[NEEDED] = 2 * (size + changes)
            if used[COUNT] + used[NEEDED] > nodes.shape[0]:
                return j
            _list(nodes, root, scratch[0], ZERO, path)
            n = _merged(scratch[0], size, elements, adds, j, ends[w], scratch[1])
            roots[w] = _build(nodes, slots, used, scratch[1], n, TRUE)
            j = ends[w]
            continue
        used[NEEDED] = DEPTH
        if used[COUNT] + used[NEEDED] > nodes.shape[0]:
            return j
        if adds[j]:
            roots[w] = _with(nodes, slots, used, root, elements[j], path)
        else:
            roots[w] = _without(nodes, slots, used, root, elements[j], path)
        j += 1
    return j


@kernel
def find_set(nodes, slots, used, elements, may_add):
    """Return the set of sorted, distinct elements; -1 if there is none and none may be created.

    To create it, there must be room for twice as many nodes as elements.
    """
    return _build(nodes, slots, used, elements, elements.shape[0], may_add)


@kernel
def list_sets(nodes, roots, out):
    """Write the elements of sets one after the other, those of each sorted."""
    stack = np.empty(DEPTH, np.int64)
    at = 0
    for i in range(roots.shape[0]):
        at = _list(nodes, roots[i], out, at, stack)


@kernel
def enter_nodes(nodes, first, stop, slots):
    """Enter nodes into the slots, which do not have them yet."""
    mask = slots.shape[0] - 1
    for node in range(first, stop):
        at = _home(nodes[node, KEY], nodes[node, LEFT], nodes[node, RIGHT], mask)
        while slots[at] != 0:
            at = (at + 1) & mask
        slots[at] = node
