"""Several results of the same groups: what they were before an epoch, and which rows it changes.

The groups of an epoch are in the log (kernel/groups.py), with what they were. Sums of other columns
of the same rows have their groups in the same order there, whatever their slots are. So results
are written next to each other by the number of the group, and compared as one row.
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
from tidelog.kernel.compiling import bare
from tidelog.kernel.exact import LIMBS
from tidelog.kernel.groups import (
    BLOCK,
    FIELDS,
    LOG_BLOCK,
    LOG_SHAPE,
    LOG_SLOT,
    LOG_SUPPORT,
    LOG_VALUE,
    SHAPE,
    SUPPORT,
    VALUE,
)


@bare
def _computed(words, block, shape, support, operation, limbs):
    """Return the ordinal of a result of a kept sum; `limbs` comes and goes with zeros."""
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


@bare
def write_results(
    heads, words, log, operations, kept, places, is_first, limbs, before, after, had, has
):
    """Write what results of each group of the log were before the epoch, and what they are now.

    They are those of one sum, and have their places among all. The one that the heads keep is
    number `kept`, others are computed. `had` and `has` tell in the end which groups have all of
    them; `is_first` says that nothing is known there yet.
    """
    width = heads.shape[1] - FIELDS
    for g in range(log.shape[0]):
        slot = log[g, LOG_SLOT]
        old_shape, shape = log[g, LOG_SHAPE], heads[slot, width + SHAPE]
        old_support, support = log[g, LOG_SUPPORT], heads[slot, width + SUPPORT]
        had[g] = (is_first or had[g]) and old_shape & VALID != 0
        has[g] = (is_first or has[g]) and shape & VALID != 0
        for r in range(places.shape[0]):
            at = places[r]
            if operations[r, OPERATION] == COUNT_ROWS:
                before[at, g], after[at, g] = old_support, support
            elif r == kept:
                before[at, g], after[at, g] = log[g, LOG_VALUE], heads[slot, width + VALUE]
            else:
                if old_support > 0:
                    before[at, g] = _computed(
                        words, log[g, LOG_BLOCK], old_shape, old_support, operations[r], limbs
                    )
                if support > 0:
                    after[at, g] = _computed(
                        words, heads[slot, width + BLOCK], shape, support, operations[r], limbs
                    )


@bare
def changed_rows(heads, log, before, after, had, has, gone, come):
    """Write the rows (key, results) that go and those that come; return how many there are."""
    width = heads.shape[1] - FIELDS
    parts = before.shape[0]
    went = came = 0
    for g in range(log.shape[0]):
        same = had[g] and has[g]
        for r in range(parts):
            same = same and before[r, g] == after[r, g]
        if same:
            continue
        slot = log[g, LOG_SLOT]
        if had[g]:
            for c in range(width):
                gone[c, went] = heads[slot, c]
            for r in range(parts):
                gone[width + r, went] = before[r, g]
            went += 1
        if has[g]:
            for c in range(width):
                come[c, came] = heads[slot, c]
            for r in range(parts):
                come[width + r, came] = after[r, g]
            came += 1
    return went, came
