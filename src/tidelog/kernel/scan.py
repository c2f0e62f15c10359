"""Trees of partial results over the positions of a run (store/run_tree.py).

The rows of a run are divided into blocks. Node b + blocks is the b-th block, and node i combines
the nodes 2i and 2i + 1. If there are several blocks, node 1 is the whole run. A node has five
numbers: the count of the live rows below it and, for one column, their sum in two halves of 32
bits, their smallest and their largest value. All of these can be combined in any order.
"""

from __future__ import annotations

from numba import njit

from tidelog.kernel.compiling import kernel
from tidelog.kernel.pointers import load32

BLOCK = 32
COUNT, HIGH, LOW, LEAST, GREATEST = range(5)

_HALF = 32
_LOW_HALF = (1 << _HALF) - 1
_LARGEST = (1 << 63) - 1
_SMALLEST = -(1 << 63)


@njit(cache=True, inline="always")
def _add_rows(words, start, stop, marks, limit, word, shift, mask, bias, into, at):
    """Add the rows [start, stop) that are alive to a column of partial results."""
    for i in range(start, stop):
        if marks == 0 or load32(marks, i) <= limit:
            value = ((words[word, i] >> shift) & mask) + bias
            into[COUNT, at] += 1
            into[HIGH, at] += value >> _HALF
            into[LOW, at] += value & _LOW_HALF
            into[LEAST, at] = min(into[LEAST, at], value)
            into[GREATEST, at] = max(into[GREATEST, at], value)


@njit(cache=True, inline="always")
def _add_node(nodes, node, into, at):
    into[COUNT, at] += nodes[COUNT, node]
    into[HIGH, at] += nodes[HIGH, node]
    into[LOW, at] += nodes[LOW, node]
    into[LEAST, at] = min(into[LEAST, at], nodes[LEAST, node])
    into[GREATEST, at] = max(into[GREATEST, at], nodes[GREATEST, node])


@njit(cache=True, inline="always")
def _clear(into, at):
    into[COUNT, at] = 0
    into[HIGH, at] = 0
    into[LOW, at] = 0
    into[LEAST, at] = _LARGEST
    into[GREATEST, at] = _SMALLEST


@kernel
def grow(words, marks, limit, word, shift, mask, bias, nodes):
    """Compute all nodes. `marks` is the address of the marks, or 0 when all rows are alive."""
    blocks = nodes.shape[1] // 2
    n = words.shape[1]
    for b in range(blocks):
        _clear(nodes, blocks + b)
        stop = min(n, (b + 1) * BLOCK)
        _add_rows(words, b * BLOCK, stop, marks, limit, word, shift, mask, bias, nodes, blocks + b)
    for node in range(blocks - 1, 0, -1):
        _clear(nodes, node)
        _add_node(nodes, 2 * node, nodes, node)
        _add_node(nodes, 2 * node + 1, nodes, node)


@kernel
def renew(words, marks, limit, word, shift, mask, bias, nodes, positions):
    """Recompute the nodes from some rows to the root, after their marks have changed."""
    blocks = nodes.shape[1] // 2
    n = words.shape[1]
    for i in range(positions.shape[0]):
        b = positions[i] // BLOCK
        if i > 0 and positions[i - 1] // BLOCK == b:
            continue
        node = blocks + b
        _clear(nodes, node)
        stop = min(n, (b + 1) * BLOCK)
        _add_rows(words, b * BLOCK, stop, marks, limit, word, shift, mask, bias, nodes, node)
        node >>= 1
        while node > 0:
            _clear(nodes, node)
            _add_node(nodes, 2 * node, nodes, node)
            _add_node(nodes, 2 * node + 1, nodes, node)
            node >>= 1


@njit(cache=True, inline="always")
def _fold(words, marks, limit, word, shift, mask, bias, nodes, start, stop, into, at):
    """Add the rows [start, stop) to a column of `into`; return how many nodes it took.

    The rows of a block that is only partly in the interval are added one by one; there are at most
    two such blocks.
    """
    blocks = nodes.shape[1] // 2
    first, last = -(-start // BLOCK), stop // BLOCK
    used = 0
    if first >= last:
        _add_rows(words, start, stop, marks, limit, word, shift, mask, bias, into, at)
    else:
        _add_rows(words, start, first * BLOCK, marks, limit, word, shift, mask, bias, into, at)
        _add_rows(words, last * BLOCK, stop, marks, limit, word, shift, mask, bias, into, at)
        left, right = blocks + first, blocks + last
        while left < right:
            if left & 1:
                _add_node(nodes, left, into, at)
                left += 1
                used += 1
            if right & 1:
                right -= 1
                _add_node(nodes, right, into, at)
                used += 1
            left >>= 1
            right >>= 1
    return used


@kernel
def fold(words, marks, limit, word, shift, mask, bias, nodes, start, stop, into):
    """Add the rows [start, stop) to partial results; return how many nodes it took."""
    return _fold(words, marks, limit, word, shift, mask, bias, nodes, start, stop, into, 0)


@njit(cache=True, inline="always")
def _rows_before(words, keys, i, behind):
    """Return how many rows are before the key in column i, or with `behind` not after it."""
    low, high = 0, words.shape[1]
    while low < high:
        middle = (low + high) >> 1
        is_before = behind
        for w in range(words.shape[0]):
            if words[w, middle] != keys[w, i]:
                is_before = words[w, middle] < keys[w, i]
                break
        if is_before:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def fold_ranges(words, marks, limit, word, shift, mask, bias, nodes, low, high, into):
    """Add the rows from low[:, i] up to high[:, i], both included, to column i of `into`."""
    for i in range(low.shape[1]):
        start = _rows_before(words, low, i, False)
        stop = _rows_before(words, high, i, True)
        if start < stop:
            _fold(words, marks, limit, word, shift, mask, bias, nodes, start, stop, into, i)
