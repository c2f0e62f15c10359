"""How a LEAP of a trace moves an atom on, also through values that a negated atom has.

`skip` finds the next value that an atom has and a negated atom lacks. Where both have the same
rows, it need not look at them: it gallops over positions. Rows i..i+k of one run and j..j+k of
another have the same values

    if the last two are equal, and the second atom is a subset of the first one, or
    if the last two are the first ones + k: all values between are there.

In the first case, that is the principle of leapfrog-maintenance.md, 3.1.2: an interval in which
both have as many rows has no complement. What neither proves is compared row by row, in a loop. A
row of another run ends a gallop, and so does a dead row; marks are read one by one.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import join_layout as k
from tidelog.kernel.compiling import bare_helper, inlined
from tidelog.kernel.descriptors import MARKS, WORDS
from tidelog.kernel.pointers import load32, load64
from tidelog.kernel.search import gallop

HIGHEST = np.int64(2**63 - 1)


@inlined
def least(runs, fields, high, cursor, counts, limits, version, atom, depth, target):
    """Return whether an atom has a value that is at least `target`, and the least one."""
    word, shift = fields[atom, depth, k.FIELD_WORD], fields[atom, depth, k.FIELD_SHIFT]
    mask, prefix = fields[atom, depth, k.FIELD_MASK], fields[atom, depth, k.FIELD_PREFIX]
    best = HIGHEST
    some = False
    if mask != -1 and target > mask:
        return some, best
    limit = limits[version]
    for r in range(counts[version, atom]):
        at, end = cursor[version, atom, depth, r], high[version, atom, depth, r]
        if at < end:
            address = runs[atom, r, WORDS + word]
            current = load64(address, at)
            if ((current >> shift) & mask) < target:
                at = gallop(address, at, end, (current & prefix) + (target << shift))
            marks = runs[atom, r, MARKS]
            if marks != 0:
                while at < end and load32(marks, at) > limit:
                    at += 1
            cursor[version, atom, depth, r] = at
            if at < end:
                best = min(best, (load64(address, at) >> shift) & mask)
                some = True
    return some, best


@inlined
def _main_run(runs, fields, high, cursor, counts, version, atom, depth, value):
    """Return the run whose cursor is at `value`, and the least value of the others; -1 for none."""
    word, shift = fields[atom, depth, k.FIELD_WORD], fields[atom, depth, k.FIELD_SHIFT]
    mask = fields[atom, depth, k.FIELD_MASK]
    main = np.int64(-1)
    others = HIGHEST
    for r in range(counts[version, atom]):
        at = cursor[version, atom, depth, r]
        if at < high[version, atom, depth, r]:
            here = (load64(runs[atom, r, WORDS + word], at) >> shift) & mask
            if here == value and main < 0:
                main = np.int64(r)
            else:
                others = min(others, here)
    return main, others


@inlined
def _shown(marks, limit, at, first, last):
    """Return the last of the rows at + first .. at + last before one that is not shown."""
    if marks != 0:
        for i in range(first, last + 1):
            if load32(marks, at + i) > limit:
                return np.int64(i - 1)
    return last


@inlined
def _are_same(
    address, at, shift, mask, address_2, at_2, shift_2, mask_2, bound, last, is_subset, dense
):
    """Return whether rows up to these have the same values: they do if `dense` is the last one."""
    here = (load64(address, at) >> shift) & mask
    if here != (load64(address_2, at_2) >> shift_2) & mask_2:
        return False
    return here < bound and here <= last and (is_subset or here == dense)


@bare_helper
def _pass_shared(
    runs, fields, high, cursor, counts, limits, version, atom, depth, other, other_depth, value,
    last, is_subset,
):  # fmt: skip
    """Move both atoms from `value` to the last row up to which they are known to have the same.

    Returns its value, which is at most `last`. Both have one row for each value.
    """
    run, bound = _main_run(runs, fields, high, cursor, counts, version, atom, depth, value)
    run_2, bound_2 = _main_run(
        runs, fields, high, cursor, counts, version, other, other_depth, value
    )
    bound = min(bound, bound_2)
    if run < 0 or run_2 < 0 or bound <= value:
        return value
    shift, mask = fields[atom, depth, k.FIELD_SHIFT], fields[atom, depth, k.FIELD_MASK]
    shift_2, mask_2 = (
        fields[other, other_depth, k.FIELD_SHIFT], fields[other, other_depth, k.FIELD_MASK],
    )  # fmt: skip
    address = runs[atom, run, WORDS + fields[atom, depth, k.FIELD_WORD]]
    address_2 = runs[other, run_2, WORDS + fields[other, other_depth, k.FIELD_WORD]]
    marks, marks_2 = runs[atom, run, MARKS], runs[other, run_2, MARKS]
    limit = limits[version]
    at, at_2 = cursor[version, atom, depth, run], cursor[version, other, other_depth, run_2]
    most = min(
        high[version, atom, depth, run] - at, high[version, other, other_depth, run_2] - at_2
    ) - 1  # fmt: skip
    known, fails, step = np.int64(0), np.int64(0), np.int64(1)
    while known < most and fails == 0:
        probe = min(known + step, most)
        shown = min(
            _shown(marks, limit, at, known + 1, probe),
            _shown(marks_2, limit, at_2, known + 1, probe),
        )
        if shown < probe:
            probe = most = shown
        if probe > known:
            if _are_same(
                address, at + probe, shift, mask, address_2, at_2 + probe, shift_2, mask_2, bound,
                last, is_subset, value + probe,
            ):  # fmt: skip
                known = probe
                step <<= 1
            else:
                fails = probe
    while fails - known > 1:
        probe = (known + fails) >> 1
        if _are_same(
            address, at + probe, shift, mask, address_2, at_2 + probe, shift_2, mask_2, bound, last,
            is_subset, value + probe,
        ):  # fmt: skip
            known = probe
        else:
            fails = probe
    if not is_subset:
        while known < most:
            here = (load64(address, at + known + 1) >> shift) & mask
            if here >= bound or here > last:
                break
            if here != (load64(address_2, at_2 + known + 1) >> shift_2) & mask_2:
                break
            if marks != 0 and load32(marks, at + known + 1) > limit:
                break
            if marks_2 != 0 and load32(marks_2, at_2 + known + 1) > limit:
                break
            known += 1
    cursor[version, atom, depth, run] = at + known
    cursor[version, other, other_depth, run_2] = at_2 + known
    return (load64(address, at + known) >> shift) & mask


@bare_helper
def skip(
    runs, fields, high, cursor, counts, limits, version, atom, depth, other, other_depth, value,
    last, is_subset,
):  # fmt: skip
    """Move an atom on from a value that it shares with a negated one to one that only it has.

    Both are at `value`. Returns whether there is one, the value, and how many moves it took. A
    value beyond `last` is only the next one of the atom.
    """
    moves = np.int64(0)
    may_gallop = (
        fields[atom, depth, k.FIELD_IS_LAST] != 0 and fields[other, other_depth, k.FIELD_IS_LAST]
    )  # fmt: skip
    while True:
        if may_gallop:
            moves += 1
            value = _pass_shared(
                runs, fields, high, cursor, counts, limits, version, atom, depth, other,
                other_depth, value, last, is_subset,
            )  # fmt: skip
        if value == HIGHEST:
            return False, value, moves
        moves += 1
        some, value = least(
            runs, fields, high, cursor, counts, limits, version, atom, depth, value + 1
        )
        if not some or value > last:
            return some, value, moves
        moves += 1
        both, found = least(
            runs, fields, high, cursor, counts, limits, version, other, other_depth, value
        )
        if not both or found > value:
            return True, value, moves
