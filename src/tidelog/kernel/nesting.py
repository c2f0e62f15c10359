"""Nested ranges: where the partners of each row are, and the rows of the result, by number.

A *nesting* is a sequence of atoms (plan/theta/nesting.py). The rows of each atom are a range, which
depends on the row of one atom before it. So the results are numbered: the atoms of a nesting count
up like the digits of a number, the last one first.

Rows have few partners each as a rule, and a loop that ends after a few steps costs as much as ten
steps: the processor predicts wrongly where it ends. So searches begin with single steps, and short
ranges are written with some values too many, which the next range overwrites.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel.compiling import ONE, ZERO, bare_kernel_without_gil, inlined
from tidelog.kernel.pointers import load64

LEAST, MOST = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)
MOST_RESULTS = np.int64(1 << 61)
"""More results are not numbered."""

# A bound of the partners: is it an upper one, does it exclude equality, the column of the row that
# it is computed from, what is added, and between which values of the column there are partners.
UPPER, STRICT, COLUMN, OFFSET, FROM, TO = range(6)

# A step of a nesting: the position of the atom that has its ranges (-1: all rows are one range),
# the addresses of the ranges, and of the results that the rows before each row have. Of the first
# step, LOW and HIGH are the range itself.
PARENT, LOW, HIGH, BEFORE = range(4)

# A column of the result: the step that has it, the address of its values, and their number.
STEP, VALUES, SIZE = range(3)

_FEW = np.int64(8)  # values that are written at once


@inlined
def _first_from(values, start, stop, wanted):
    """Return the first position whose value is at least `wanted`; fast if it is near the start."""
    near = min(stop, start + _FEW)
    while start < near and values[start] < wanted:
        start += ONE
    if start < near or start == stop:
        return start
    step = ONE
    while start + step <= stop and values[start + step - 1] < wanted:
        start += step
        step += step
    stop = min(stop, start + step - 1)
    while start < stop:
        middle = (start + stop) >> ONE
        if values[middle] < wanted:
            start = middle + 1
        else:
            stop = middle
    return start


@inlined
def _key_is_before(partners, j, rows, i, keys):
    """Return whether a partner's key is less than that of a row."""
    for k in range(keys.shape[0]):
        theirs, own = partners[keys[k, 1], j], rows[keys[k, 0], i]
        if theirs != own:
            return theirs < own
    return False


@inlined
def _key_is_same(partners, j, rows, i, keys):
    is_same = True
    for k in range(keys.shape[0]):
        is_same &= partners[keys[k, 1], j] == rows[keys[k, 0], i]
    return is_same


@inlined
def _is_other_key(rows, i, j, keys):
    is_other = False
    for k in range(keys.shape[0]):
        is_other |= rows[keys[k, 0], i] != rows[keys[k, 0], j]
    return is_other


@inlined
def _limits(rows, i, bounds, least, most):
    """Return the smallest and the largest value of a row's partners; the wrong way for none."""
    from_, to, is_possible = least, most, True
    for b in range(bounds.shape[0]):
        value, offset = rows[bounds[b, COLUMN], i], bounds[b, OFFSET]
        is_possible &= bounds[b, FROM] <= value <= bounds[b, TO]
        is_above = offset > 0 and value > MOST - offset
        is_below = offset < 0 and value < LEAST - offset
        limit = value + offset
        if bounds[b, UPPER]:
            is_possible &= not is_below
            if not is_above:
                if bounds[b, STRICT]:
                    is_possible &= limit != LEAST
                    limit -= ONE
                to = min(to, limit)
        else:
            is_possible &= not is_above
            if not is_below:
                if bounds[b, STRICT]:
                    is_possible &= limit != MOST
                    limit += ONE
                from_ = max(from_, limit)
    if is_possible:
        return from_, to
    return ONE, ZERO


@bare_kernel_without_gil
def limits(rows, n, bounds, least, most, found):
    """Write the smallest and the largest value of the partners of each row."""
    for i in range(n):
        found[0, i], found[1, i] = _limits(rows, i, bounds, least, most)


@bare_kernel_without_gil
def find_partners(rows, start, stop, partners, size, keys, column, bounds, least, most, low, high):
    """Find where the partners of some rows are: their first one, and the one behind the last.

    The partners are sorted by `keys` and the bounded column. This is fastest if the rows are sorted
    alike: each search begins where the one before has ended. `size` is the number of partners.
    """
    values = partners[column]
    group, end = ZERO, ZERO  # the partners with the key of the row before
    first, last = ZERO, ZERO
    before_from, before_to = LEAST, LEAST
    for i in range(start, stop):
        from_, to = _limits(rows, i, bounds, least, most)
        if i == start or _is_other_key(rows, i - 1, i, keys):
            if keys.shape[0] == 0:
                group, end = ZERO, size
            else:
                # Sorted rows have their key behind that of the row before.
                position, step = end, ONE
                if position > 0 and not _key_is_before(partners, position - 1, rows, i, keys):
                    position = ZERO
                while position + step <= size and _key_is_before(
                    partners, position + step - 1, rows, i, keys
                ):
                    position += step
                    step += step
                bound = min(size, position + step - 1)
                while position < bound:
                    middle = (position + bound) >> ONE
                    if _key_is_before(partners, middle, rows, i, keys):
                        position = middle + 1
                    else:
                        bound = middle
                group = end = position
                step = ONE
                while end + step <= size and _key_is_same(partners, end + step - 1, rows, i, keys):
                    end += step
                    step += step
                bound = min(size, end + step - 1)
                while end < bound:
                    middle = (end + bound) >> ONE
                    if _key_is_same(partners, middle, rows, i, keys):
                        end = middle + 1
                    else:
                        bound = middle
            first = last = group
            before_from, before_to = LEAST, LEAST
        if from_ > to:
            low[i] = high[i] = group
            continue
        first = _first_from(values, first if from_ >= before_from else group, end, from_)
        before_from = from_
        if to == MOST:
            last, before_to = end, MOST
        else:
            # If the limit grows, the search goes on; nothing before `first` is within it.
            begin = last if to >= before_to else group
            last = _first_from(values, max(first, begin), end, to + ONE)
            before_to = to
        low[i], high[i] = first, last


@bare_kernel_without_gil
def multiply(low, high, before, is_leaf, n, counts):
    """Multiply the results of each row by those of its range; return False if there are too many.

    `before` has the results of the rows before each partner. Those of a leaf have one each.
    """
    for i in range(n):
        found = high[i] - low[i] if is_leaf else before[high[i]] - before[low[i]]
        if np.float64(found) * np.float64(counts[i]) > np.float64(MOST_RESULTS):
            return False
        counts[i] *= found
    return True


@bare_kernel_without_gil
def leave_out(counts, n, rows):
    """Move the rows that have results to the front."""
    for r in range(rows.shape[0]):
        own, kept = rows[r], ZERO
        for i in range(n):
            own[kept] = own[i]
            kept += counts[i] > 0


@bare_kernel_without_gil
def add_up(counts, n, before):
    """Write for each row that has results how many those before it have, and at the end all.

    Returns the number of such rows, or -1 if there are too many results.
    """
    total, kept = ZERO, ZERO
    for i in range(n):
        if counts[i] > MOST_RESULTS - total:
            return -ONE
        before[kept] = total
        total += counts[i]
        kept += counts[i] > 0
    before[kept] = total
    return kept


@inlined
def _low(steps, step, at):
    """Return where the range of a step starts; `at` has the current row of each step."""
    parent = steps[step, PARENT]
    return steps[step, LOW] if parent < 0 else load64(steps[step, LOW], at[parent])


@inlined
def _high(steps, step, at):
    parent = steps[step, PARENT]
    return steps[step, HIGH] if parent < 0 else load64(steps[step, HIGH], at[parent])


@inlined
def _seek(steps, number, at, left):
    """Go to the result with a number. `left` is the room for the numbers within each step."""
    left[0] = number
    for step in range(steps.shape[0]):
        low, high = _low(steps, step, at), _high(steps, step, at)
        before = steps[step, BEFORE]
        if before == 0:
            at[step] = low + left[step]
            continue
        wanted = load64(before, low) + left[step]
        # The last row that has no more results before it.
        start, stop = low, high - ONE
        while start < stop:
            middle = (start + stop + ONE) >> ONE
            if load64(before, middle) <= wanted:
                start = middle
            else:
                stop = middle - ONE
        at[step] = start
        rest = wanted - load64(before, start)
        # What follows is counted up from the last of the atoms that depend on this one.
        for inner in range(steps.shape[0] - 1, step, -1):
            if steps[inner, PARENT] != step:
                continue
            first, behind, sums = (
                _low(steps, inner, at),
                _high(steps, inner, at),
                steps[inner, BEFORE],
            )
            size = behind - first if sums == 0 else load64(sums, behind) - load64(sums, first)
            left[inner] = rest % size
            rest //= size


@bare_kernel_without_gil
def write(steps, columns, number, into, start, stop, at, heads):
    """Write results as columns, from the one with a number on, to `into` from `start` up to `stop`.

    Every range has a row. `at` has room for two entries for each step, `heads` for some ranges: the
    row of each step, the first one of the last step, and how many follow.
    """
    depth = steps.shape[0]
    last, room = depth - 1, heads.shape[1]
    if start < stop:
        _seek(steps, number, at[0], at[1])
    rows = at[0]
    ends = at[1]
    for step in range(depth):
        ends[step] = _high(steps, step, rows)
    filled = start
    while filled < stop:
        # The ranges of the last step, with the rows that lead to them.
        n, planned = ZERO, filled
        while n < room and planned < stop:
            size = min(ends[last] - rows[last], stop - planned)
            for step in range(last + 1):
                heads[step, n] = rows[step]
            heads[depth, n] = size
            planned += size
            n += 1
            step = last - 1
            while step >= 0:
                rows[step] += ONE
                if rows[step] < ends[step]:
                    break
                step -= 1
            if step < 0:
                rows[last] += size
                if last > 0:
                    break
                continue
            for inner in range(step + 1, depth):
                rows[inner] = _low(steps, inner, rows)
                ends[inner] = _high(steps, inner, rows)
        for c in range(columns.shape[0]):
            step, source, behind = columns[c, STEP], columns[c, VALUES], columns[c, SIZE] - _FEW
            target, position = into[c], filled
            for r in range(n):
                first, size = heads[step, r], heads[depth, r]
                has_room = position + _FEW <= stop
                if step != last:
                    value = load64(source, first)
                    if size <= _FEW and has_room:
                        for i in range(_FEW):
                            target[position + i] = value
                    else:
                        for i in range(size):
                            target[position + i] = value
                elif size <= _FEW and has_room and first <= behind:
                    for i in range(_FEW):
                        target[position + i] = load64(source, first + i)
                else:
                    for i in range(size):
                        target[position + i] = load64(source, first + i)
                position += size
        filled = planned
