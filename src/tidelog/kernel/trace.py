"""Leapfrog triejoin that records what its trace depends on, and repeats only parts of it.

It interprets the arrays of a compiled join (kernel/join_layout.py) with the steps LEAP, WINDOW,
SEEK, ABSENT, CALC, TEST and EMIT, on two versions of the relations at once: bit 0 of a *status*
stands for the old version, bit 1 for the new one. An assignment of the variables bound so far is a
*node*; its status says in which versions it exists.

    status 3   the node is in both: a LEAP only visits the regions of its node (the change oracle)
    status 1   it is in the old version only: all below it is enumerated there, with weight -1
    status 2   it is in the new version only: all below it is enumerated there, with weight +1

With status 2 at the root and nothing else, that is a whole evaluation, which records everything.

*Intervals* (leapfrog-maintenance.md, 4.1). A LEAP opens its first atom, which makes the trace
depend on the values from -inf to the first one. A seek to s that lands on v depends on [s, v].
After a value on which all agree, the first atom moves on from it: next from v to w depends on
[v, w]. At the end of an atom the interval has no upper end. A SEEK or ABSENT depends on one value.
Intervals go to `records`: of the new version to be added, of the old one to be removed, if they do
not reach beyond the region. The paper opens all atoms, and with OPENS_ALL so do we. But then every
node depends on the first values of a small relation, whether the others ever get there or not.

A WINDOW narrows the values of its LEAP: it starts with a seek, and no interval reaches beyond the
window. Negated atoms of a LEAP are asked at a value v that all others have. If one has it, too, the
LEAP skips to the next value w that it lacks (kernel/skipping.py). Then both the atom that moves and
the negated one depend on [v, w].

A LEAP visits dead prefixes in kernel/join.py, where the last column decides. Here the intervals
depend on where a seek lands, so every landing is on a row that its version shows.

*Regions* are sorted by level, by the values of the node, and by their first value. A LEAP visits
nodes in the same order, so each level needs only a cursor. A region that is not recorded leads to
regions of lower levels.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import checked
from tidelog.kernel import join_layout as k
from tidelog.kernel.bounds import limit_code
from tidelog.kernel.compiling import bare_helper, bare_kernel, inlined
from tidelog.kernel.descriptors import MARKS, SIZE, WORDS
from tidelog.kernel.machine import run_code
from tidelog.kernel.pointers import load32, load64
from tidelog.kernel.search import gallop
from tidelog.kernel.skipping import HIGHEST, least, skip

LOWEST = np.int64(-(2**63))
"""With HIGHEST, the ends of an interval without an end."""

OLD, NEW, BOTH = 1, 2, 3

# `state`: the step, whether it is entered from above, how much is written, and what was counted.
AT_STEP, DOWN, FILLED, RECORDED, OPERATIONS, FUEL, FAILURE, WIDEN_COLUMN, WIDEN_VALUE = range(9)
VISITED, OPENS_ALL = 9, 10  # regions; whether a LEAP opens all of its atoms
STATE_SIZE = 11

# What the interpreter returns.
DONE, FULL, WIDEN, OUT_OF_FUEL = range(4)

# `levels`, by LEAP in the order of the steps: the slot of its variable, its regions, the cursor.
LEVEL_SLOT, LEVEL_START, LEVEL_STOP, LEVEL_AT = range(4)

# `regions`: the values of the node, then these.
REGION_FIRST, REGION_LAST, REGION_RECORDS = -3, -2, -1

# `work`, by step: the state of a LEAP. TODO and AT have a column for each version; LOW and HIGH are
# its window.
STATUS, RECORDS, HAS_REGION, FIRST, LAST, TODO, AT = 0, 1, 2, 3, 4, 5, 7
LOW, HIGH, WORK_SIZE = 9, 10, 11
OPEN, BEGIN, NEXT, SEEKING, HELD, ENDED = range(6)  # values of TODO

# `uses`: for each use of an atom by a step, the columns of its index, in `places`. -1 has none.
# `places`: where a value goes in a row of the index, and from where: a slot, or an end of the
# interval.
PLACE_FROM, PLACE_WORD, PLACE_SHIFT, PLACE_MASK = range(4)
FROM_FIRST, FROM_LAST = -1, -2

# `records`: the index, 1 to add the row or -1 to remove it, then the words of the row.
RECORD_INDEX, RECORD_SIGN, RECORD_WORDS = range(3)


@inlined
def _enter(runs, fields, low, high, cursor, counts, version, atom, depth, value):
    """Narrow an atom to `value`, where its cursors are."""
    word, shift = fields[atom, depth, k.FIELD_WORD], fields[atom, depth, k.FIELD_SHIFT]
    mask, prefix = fields[atom, depth, k.FIELD_MASK], fields[atom, depth, k.FIELD_PREFIX]
    for r in range(counts[version, atom]):
        at, end = cursor[version, atom, depth, r], high[version, atom, depth, r]
        low[version, atom, depth + 1, r] = 0
        high[version, atom, depth + 1, r] = 0
        if at < end:
            address = runs[atom, r, WORDS + word]
            current = load64(address, at)
            if ((current >> shift) & mask) == value:
                target = (current & prefix) + (value << shift)
                after, overflowed = checked.add(target, np.int64(1) << shift)
                low[version, atom, depth + 1, r] = at
                high[version, atom, depth + 1, r] = (
                    end if overflowed else gallop(address, at + 1, end, after)
                )


@inlined
def _narrow(
    runs, fields, columns, slots, low, high, counts, version, atom, depth, depth_to, start, stop
):
    """Narrow an atom by the known values of the columns [depth, depth_to), all in one word.

    Returns whether any row is left, dead or alive, and whether the values fit the columns.
    """
    key = np.int64(0)
    for c in range(start, stop):
        value = slots[columns[c, k.COLUMN_SLOT]]
        if value & ~columns[c, k.COLUMN_MASK]:
            return False, False
        key += value << columns[c, k.COLUMN_SHIFT]
    word = fields[atom, depth, k.FIELD_WORD]
    prefix = fields[atom, depth, k.FIELD_PREFIX]
    unit = np.int64(1) << columns[stop - 1, k.COLUMN_SHIFT]
    found = False
    for r in range(counts[version, atom]):
        at, end = low[version, atom, depth, r], high[version, atom, depth, r]
        low[version, atom, depth_to, r] = 0
        high[version, atom, depth_to, r] = 0
        if at < end:
            address = runs[atom, r, WORDS + word]
            target = (load64(address, at) & prefix) + key
            at = gallop(address, at, end, target)
            after, overflowed = checked.add(target, unit)
            beyond = end if overflowed else gallop(address, at, end, after)
            if beyond > at:
                low[version, atom, depth_to, r] = at
                high[version, atom, depth_to, r] = beyond
                found = True
    return found, True


@inlined
def _narrow_absent(
    parts, segments, runs, fields, columns, slots, low, high, cursor, counts, version, p
):
    """Narrow a negated atom of a LEAP by the values of its other columns."""
    atom, depth = parts[p, k.PART_ATOM], parts[p, k.PART_DEPTH]
    found = True
    for g in range(parts[p, k.PART_KEY_START], parts[p, k.PART_KEY_STOP]):
        if found:
            found, _ = _narrow(
                runs, fields, columns, slots, low, high, counts, version, atom,
                segments[g, k.SEGMENT_DEPTH], segments[g, k.SEGMENT_DEPTH_TO],
                segments[g, k.SEGMENT_START], segments[g, k.SEGMENT_STOP],
            )  # fmt: skip
    for r in range(counts[version, atom]):
        if not found:
            high[version, atom, depth, r] = low[version, atom, depth, r]
        cursor[version, atom, depth, r] = low[version, atom, depth, r]


@inlined
def _is_shown(runs, low, high, counts, limits, version, atom, depth):
    """Return whether a version shows any row of an atom's range."""
    for r in range(counts[version, atom]):
        at, end = low[version, atom, depth, r], high[version, atom, depth, r]
        marks = runs[atom, r, MARKS]
        if marks != 0:
            while at < end and load32(marks, at) > limits[version]:
                at += 1
        if at < end:
            return True
    return False


@inlined
def _record(slots, uses, places, records, n, use, sign, first, last):
    """Write an interval as a row of its index; return how many are written."""
    for w in range(records.shape[0]):
        records[w, n] = 0
    records[RECORD_INDEX, n] = use
    records[RECORD_SIGN, n] = sign
    for c in range(uses[use], uses[use + 1]):
        source, mask = places[c, PLACE_FROM], places[c, PLACE_MASK]
        if source == FROM_FIRST:
            value = first if mask == -1 else max(first, np.int64(0))
        elif source == FROM_LAST:
            value = last if mask == -1 else min(last, mask)
        else:
            value = slots[source]
        records[RECORD_WORDS + places[c, PLACE_WORD], n] += value << places[c, PLACE_SHIFT]
    return n + 1


@bare_helper
def _find(
    steps, parts, fields, runs, slots, high, cursor, counts, limits, part_uses, uses, places, work,
    position, records, state, step, version,
):  # fmt: skip
    """Move one version of a LEAP to the next value on which its atoms agree.

    Returns whether it got there; otherwise the records are full, and it can be called again.
    """
    start, stop = steps[step, k.LEAP_START], steps[step, k.LEAP_STOP]
    absent_stop = steps[step, k.LEAP_ABSENT_STOP]
    todo, value = work[step, TODO + version], work[step, AT + version]
    last, end = work[step, LAST], work[step, HIGH]
    recorded, capacity = state[RECORDED], records.shape[1]
    sign = np.int64(2 * version - 1)
    if todo in (OPEN, BEGIN):
        for p in range(start, absent_stop):
            position[version, p, 0] = 0
    if todo == BEGIN:
        todo = np.int64(SEEKING)
    p = start
    agreed = False
    while not agreed:
        if recorded + 2 > capacity:
            work[step, TODO + version], work[step, AT + version] = todo, value
            state[RECORDED] = recorded
            return False
        # Which atom moves, to which value, and where the interval begins.
        target = first = value
        if todo == OPEN:
            target = first = LOWEST
        elif todo == NEXT:
            p = start
            for q in range(start, absent_stop):
                position[version, q, 0] = 0
            if value >= end:
                todo = np.int64(ENDED)
                break
            target = value + 1
        else:
            p = start
            while p < stop and position[version, p, 0] != 0 and position[version, p, 1] == value:
                p += 1
            if p == stop:
                while (
                    p < absent_stop
                    and position[version, p, 0] != 0
                    and position[version, p, 1] == value
                ):
                    p += 1
                if p == absent_stop:
                    agreed = True
                    break
                atom, depth = parts[p, k.PART_ATOM], parts[p, k.PART_DEPTH]
                some, found = least(
                    runs, fields, high, cursor, counts, limits, version, atom, depth, value
                )
                state[OPERATIONS] += 1
                use, records_it = part_uses[p], work[step, RECORDS] != 0
                if not some or found > value:
                    position[version, p, 0], position[version, p, 1] = 1, value
                    if use >= 0 and records_it:
                        recorded = _record(
                            slots, uses, places, records, recorded, use, sign, value, value
                        )
                    continue
                whole = parts[p, k.PART_WHOLE]
                some, found, moves = skip(
                    runs, fields, high, cursor, counts, limits, version,
                    parts[whole, k.PART_ATOM], parts[whole, k.PART_DEPTH], atom, depth, value, last,
                    parts[p, k.PART_IS_SUBSET] != 0,
                )  # fmt: skip
                state[OPERATIONS] += moves
                shown = min(found, end)
                if records_it and (version == 1 or shown <= last):
                    if use >= 0:
                        recorded = _record(
                            slots, uses, places, records, recorded, use, sign, value, shown
                        )
                    use = part_uses[whole]
                    if use >= 0:
                        recorded = _record(
                            slots, uses, places, records, recorded, use, sign, value, shown
                        )
                if not some or found > last:
                    todo = np.int64(ENDED)
                    break
                value = found
                position[version, whole, 0], position[version, whole, 1] = 1, value
                position[version, p, 0], position[version, p, 1] = 1, value
                continue
        some, found = least(
            runs, fields, high, cursor, counts, limits, version, parts[p, k.PART_ATOM],
            parts[p, k.PART_DEPTH], target,
        )  # fmt: skip
        state[OPERATIONS] += 1
        position[version, p, 0], position[version, p, 1] = 1, found
        use = part_uses[p]
        shown = min(found, end)
        if use >= 0 and work[step, RECORDS] and (version == 1 or shown <= last):
            recorded = _record(slots, uses, places, records, recorded, use, sign, first, shown)
        if not some:
            todo = np.int64(ENDED)
            break
        if todo == OPEN:
            value = found if p == start else max(value, found)
            p += 1
            if p < stop and state[OPENS_ALL]:
                continue
        else:
            value = found
        todo = np.int64(SEEKING)
        if value > last:
            todo = np.int64(ENDED)
            break
    state[RECORDED] = recorded
    work[step, TODO + version] = HELD if agreed else ENDED
    work[step, AT + version] = value
    return True


@inlined
def _compare_node(regions, at, levels, level, slots):
    """Return -1, 0 or 1: whether the node of a region is before, at or after the current one."""
    for i in range(level):
        value, here = regions[at, i], slots[levels[i, LEVEL_SLOT]]
        if value < here:
            return -1
        if value > here:
            return 1
    return 0


@bare_kernel
def trace(
    steps, parts, columns, segments, fields, runs, code, emits, slots, low, high, cursor, counts,
    limits, level_of, levels, regions, part_uses, step_uses, uses, places, work, position,
    statuses, out, records, state,
):  # fmt: skip
    """Run the steps until they are done, or an output is full, or the fuel is used up.

    `statuses` has two rows: the status of each step, and whether it records.
    """
    step, down = state[AT_STEP], state[DOWN] != 0
    capacity, room = out.shape[1], records.shape[1]
    while step >= 0:
        state[FUEL] -= 1
        if state[FUEL] <= 0:
            state[AT_STEP], state[DOWN] = step, down
            return OUT_OF_FUEL
        op = steps[step, k.OP]
        if op == k.LEAP:
            start, stop = steps[step, k.LEAP_START], steps[step, k.LEAP_STOP]
            level = level_of[step]
            status = statuses[0, step]
            if down:
                down = False
                for version in range(2):
                    work[step, TODO + version] = ENDED
                    if (status >> version) & 1:
                        for p in range(start, stop):
                            atom, depth = parts[p, k.PART_ATOM], parts[p, k.PART_DEPTH]
                            for r in range(counts[version, atom]):
                                cursor[version, atom, depth, r] = low[version, atom, depth, r]
                        for p in range(stop, steps[step, k.LEAP_ABSENT_STOP]):
                            _narrow_absent(
                                parts, segments, runs, fields, columns, slots, low, high, cursor,
                                counts, version, p,
                            )  # fmt: skip
                if status == BOTH:
                    work[step, HAS_REGION] = 0
                    at = levels[level, LEVEL_AT]
                    while (
                        at < levels[level, LEVEL_STOP]
                        and _compare_node(regions, at, levels, level, slots) < 0
                    ):
                        at += 1
                    levels[level, LEVEL_AT] = at
                else:
                    work[step, HAS_REGION] = 1
                    work[step, RECORDS] = 1
                    work[step, FIRST] = first = work[step, LOW]
                    work[step, LAST] = work[step, HIGH]
                    work[step, TODO + status - 1] = OPEN if first == LOWEST else BEGIN
                    work[step, AT + status - 1] = first
            if not work[step, HAS_REGION]:
                at = levels[level, LEVEL_AT]
                if (
                    at == levels[level, LEVEL_STOP]
                    or _compare_node(regions, at, levels, level, slots) != 0
                ):
                    step -= 1
                    continue
                levels[level, LEVEL_AT] = at + 1
                first = max(regions[at, REGION_FIRST], work[step, LOW])
                last = min(regions[at, REGION_LAST], work[step, HIGH])
                if first > last:
                    continue
                state[VISITED] += 1
                work[step, HAS_REGION] = 1
                work[step, FIRST], work[step, LAST] = first, last
                work[step, RECORDS] = regions[at, REGION_RECORDS]
                for version in range(2):
                    work[step, TODO + version] = OPEN if first == LOWEST else BEGIN
                    work[step, AT + version] = first
            full = False
            for version in range(2):
                if work[step, TODO + version] < HELD and not full:
                    full = not _find(
                        steps, parts, fields, runs, slots, high, cursor, counts, limits, part_uses,
                        uses, places, work, position, records, state, step, version,
                    )  # fmt: skip
            if full:
                state[AT_STEP], state[DOWN] = step, 0
                return FULL
            found = np.int64(0)
            value = HIGHEST
            for version in range(2):
                if work[step, TODO + version] == HELD:
                    here = work[step, AT + version]
                    if found == 0 or here < value:
                        found, value = np.int64(1 << version), here
                    elif here == value:
                        found |= 1 << version
            if found == 0:
                if status == BOTH:
                    work[step, HAS_REGION] = 0
                else:
                    step -= 1
                continue
            slots[steps[step, k.LEAP_SLOT]] = value
            for version in range(2):
                if (found >> version) & 1:
                    work[step, TODO + version] = NEXT
                    for p in range(start, stop):
                        _enter(
                            runs, fields, low, high, cursor, counts, version,
                            parts[p, k.PART_ATOM], parts[p, k.PART_DEPTH], value,
                        )  # fmt: skip
            step += 1
            down = True
            statuses[0, step] = found
            statuses[1, step] = work[step - 1, RECORDS] if found == BOTH else 1
        elif op == k.EMIT:
            status = statuses[0, step]
            if down and status != BOTH and capacity:
                filled = state[FILLED]
                if filled == capacity:
                    state[AT_STEP], state[DOWN] = step, 1
                    return FULL
                height = out.shape[0]
                for w in range(height - 1):
                    out[w, filled] = 0
                for e in range(emits.shape[0]):
                    value = slots[emits[e, k.EMIT_SLOT]]
                    if value & ~emits[e, k.EMIT_MASK]:
                        state[WIDEN_COLUMN], state[WIDEN_VALUE] = e, value
                        return WIDEN
                    out[emits[e, k.EMIT_WORD], filled] += value << emits[e, k.EMIT_SHIFT]
                out[height - 1, filled] = 1 if status == NEW else -1
                state[FILLED] = filled + 1
            down = False
            step -= 1
        elif not down:
            step -= 1  # the steps below have one solution at most
        else:
            status, records_here = statuses[0, step], statuses[1, step]
            passed = np.int64(0)
            if op in (k.SEEK, k.ABSENT):
                if state[RECORDED] + 2 > room:
                    state[AT_STEP], state[DOWN] = step, 1
                    return FULL
                use = step_uses[step]
                atom = steps[step, k.SEEK_ATOM]
                value = np.int64(0)
                for version in range(2):
                    if (status >> version) & 1:
                        state[OPERATIONS] += 1
                        if op == k.SEEK:
                            depth_to = steps[step, k.SEEK_DEPTH_TO]
                            stop = steps[step, k.SEEK_STOP]
                            present, fits = _narrow(
                                runs, fields, columns, slots, low, high, counts, version, atom,
                                steps[step, k.SEEK_DEPTH], depth_to, steps[step, k.SEEK_START],
                                stop,
                            )  # fmt: skip
                        else:
                            present, fits = True, True
                            depth_to, stop = np.int64(0), np.int64(0)
                            for g in range(steps[step, k.ABSENT_START], steps[step, k.ABSENT_STOP]):
                                depth_to = segments[g, k.SEGMENT_DEPTH_TO]
                                stop = segments[g, k.SEGMENT_STOP]
                                if fits:
                                    some, fits = _narrow(
                                        runs, fields, columns, slots, low, high, counts, version,
                                        atom, segments[g, k.SEGMENT_DEPTH], depth_to,
                                        segments[g, k.SEGMENT_START], stop,
                                    )  # fmt: skip
                                    present = present and some
                        present = present and _is_shown(
                            runs, low, high, counts, limits, version, atom, depth_to
                        )
                        if use >= 0 and records_here and fits:
                            value = slots[columns[stop - 1, k.COLUMN_SLOT]]
                            state[RECORDED] = _record(
                                slots, uses, places, records, state[RECORDED], use,
                                np.int64(2 * version - 1), value, value,
                            )  # fmt: skip
                        if present == (op == k.SEEK):
                            passed |= 1 << version
            elif op == k.WINDOW:
                leap = steps[step, k.WINDOW_LEAP]
                if steps[step, k.WINDOW_IS_FIRST]:
                    work[leap, LOW], work[leap, HIGH] = LOWEST, HIGHEST
                place, before, beyond = limit_code(
                    slots[steps[step, k.WINDOW_SLOT]], steps[step, k.WINDOW_OFFSET],
                    steps[step, k.WINDOW_BIAS], steps[step, k.WINDOW_KIND],
                    steps[step, k.WINDOW_MASK],
                )  # fmt: skip
                passed = status
                if steps[step, k.WINDOW_KIND] & k.BELOW:
                    least_code = LOWEST if steps[step, k.WINDOW_MASK] == -1 else np.int64(0)
                    if before or (place == least_code and not beyond):
                        passed = np.int64(0)
                    elif not beyond:
                        work[leap, HIGH] = min(work[leap, HIGH], place - 1)
                elif beyond:
                    passed = np.int64(0)
                elif not before:
                    work[leap, LOW] = max(work[leap, LOW], place)
                if work[leap, LOW] > work[leap, HIGH]:
                    passed = np.int64(0)
            else:  # CALC or TEST
                failure = run_code(code, steps[step, k.CODE_START], steps[step, k.CODE_STOP], slots)
                if failure:
                    # Whether this is an error depends on the whole rule (join/failures.py).
                    if status & NEW:
                        state[FAILURE] = failure
                elif op == k.CALC or slots[steps[step, k.CODE_RESULT]] != 0:
                    passed = status
            if passed:
                step += 1
                statuses[0, step] = passed
                statuses[1, step] = records_here if passed == BOTH else 1
            else:
                down = False
                step -= 1
    state[AT_STEP], state[DOWN] = -1, 0
    return DONE


@bare_kernel
def read_both(runs, high, counts, atom, descriptors, old, new):
    """Make an atom read runs: the first `old` of them in the old version, `new` in the new one."""
    for r in range(descriptors.shape[0]):
        for c in range(descriptors.shape[1]):
            runs[atom, r, c] = descriptors[r, c]
        for version in range(2):
            high[version, atom, 0, r] = descriptors[r, SIZE]
    counts[0, atom], counts[1, atom] = old, new


@bare_kernel
def restart(state, slots, initial, levels, statuses, status, opens_all):
    """Move a trace to its beginning, with a status for the root."""
    for i in range(state.shape[0]):
        state[i] = 0
    state[DOWN] = 1
    state[OPENS_ALL] = opens_all
    for i in range(slots.shape[0]):
        slots[i] = initial[i]
    for level in range(levels.shape[0]):
        levels[level, LEVEL_AT] = levels[level, LEVEL_START]
    statuses[0, 0], statuses[1, 0] = status, 1
