"""Several results of the same groups: what they were before an epoch, and which rows it changes.

The undo array (kernel/groups.py) has the groups of an epoch as they were before. Sums of other
columns of the same rows have the same groups in the same order there, whatever their slots are. So
the results of a group are written next to each other, by its number, and compared as one row.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel.accumulate import (
    BYTE,
    COUNT_ROWS,
    COUNT_SHIFT,
    NEGATIVE,
    OPERATION,
    SPECIAL,
    VALID,
    value_of,
)
from tidelog.kernel.compiling import bare_helper, bare_kernel
from tidelog.kernel.exact import LIMBS
from tidelog.kernel.groups import (
    BLOCK,
    FIELDS,
    SHAPE,
    SUPPORT,
    UNDO_BLOCK,
    UNDO_SHAPE,
    UNDO_SLOT,
    UNDO_SUPPORT,
    UNDO_VALUE,
    VALUE,
)


@bare_helper
def _computed(words, block, shape, support, operation, limbs):
    """Return the ordinal of a result of a stored sum; `limbs` is all zeros before and after."""
    low, count = shape & BYTE, (shape >> COUNT_SHIFT) & BYTE
    for i in range(count):
        limbs[low + i] = np.int64(words[block + i])
    if shape & SPECIAL:
        for s in range(3):
            at = block + count + 2 * s
            limbs[LIMBS + s] = np.int64(words[at]) | (np.int64(words[at + 1]) << 32)
    sign = np.int64(0)
    if count != 0:
        sign = np.int64(-1) if shape & NEGATIVE else np.int64(1)
    value, _ = value_of(operation, support, limbs, sign, low, low + count)
    for i in range(low, low + count):
        limbs[i] = 0
    for i in range(LIMBS, LIMBS + 3):
        limbs[i] = 0
    return value


@bare_kernel
def write_results(
    heads, words, undo, operations, kept, places, is_first, limbs, before, after, had, has
):
    """Write the results of each group of the epoch before it, and after it.

    They are the results of one sum; `places` are their positions among all results. The heads have
    the result number `kept`; the others are computed. After the last call, `had` and `has` say
    which groups have all results. `is_first` says that this is the first call.
    """
    width = heads.shape[1] - FIELDS
    for g in range(undo.shape[0]):
        slot = undo[g, UNDO_SLOT]
        old_shape, shape = undo[g, UNDO_SHAPE], heads[slot, width + SHAPE]
        old_support, support = undo[g, UNDO_SUPPORT], heads[slot, width + SUPPORT]
        had[g] = (is_first or had[g]) and old_shape & VALID != 0
        has[g] = (is_first or has[g]) and shape & VALID != 0
        for r in range(places.shape[0]):
            at = places[r]
            if operations[r, OPERATION] == COUNT_ROWS:
                before[at, g], after[at, g] = old_support, support
            elif r == kept:
                before[at, g], after[at, g] = undo[g, UNDO_VALUE], heads[slot, width + VALUE]
            else:
                if old_support > 0:
                    before[at, g] = _computed(
                        words, undo[g, UNDO_BLOCK], old_shape, old_support, operations[r], limbs
                    )
                if support > 0:
                    after[at, g] = _computed(
                        words, heads[slot, width + BLOCK], shape, support, operations[r], limbs
                    )


@bare_kernel
def changed_rows(heads, undo, before, after, had, has, deleted, inserted):
    """Write the rows (key, results) to delete and to insert; return how many there are of each."""
    width = heads.shape[1] - FIELDS
    parts = before.shape[0]
    old = new = 0
    for g in range(undo.shape[0]):
        same = had[g] and has[g]
        for r in range(parts):
            same = same and before[r, g] == after[r, g]
        if same:
            continue
        slot = undo[g, UNDO_SLOT]
        if had[g]:
            for c in range(width):
                deleted[c, old] = heads[slot, c]
            for r in range(parts):
                deleted[width + r, old] = before[r, g]
            old += 1
        if has[g]:
            for c in range(width):
                inserted[c, new] = heads[slot, c]
            for r in range(parts):
                inserted[width + r, new] = after[r, g]
            new += 1
    return old, new
