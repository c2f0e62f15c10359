"""Leapfrog triejoin: one interpreter for all rules.

A rule is compiled into *steps* (kernel/program.py). The interpreter walks them depth first: a step
that finds a value goes down to the next one, a step that has no further value goes back up to the
one before. An atom is read through the sorted runs of one of its orders; narrowing it by the value
of its next column leaves a range of rows in each run.

    LEAP      bind a variable to the next value on which several atoms agree
    SCAN      bind the remaining columns of an atom, row by row
    SEEK      narrow an atom by values that are known already
    CALC      compute values (kernel/machine.py)
    TEST      go on only if a computed value is true
    ABSENT    go on only if no row of an atom matches known values
    RANGE     bind a variable to the numbers of a range
    EMIT      write the head
    SCAN_EMIT a SCAN whose rows are written to the head at once: the innermost loop of most rules

Rows carry a *level* beside their words: the iteration that derived them, or a mark that they are
dead. Levels decide which rows a version of a relation shows, and for recursive rules (`mode` other
than PLAIN) which iteration an instantiation belongs to; see maintain/elastic.py.

Output goes to `out` in chunks: when it is full the interpreter returns, and goes on from the same
place when called again.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel import checked
from tidelog.kernel.compiling import bare
from tidelog.kernel.machine import DIVISION, run_code
from tidelog.kernel.memory import load32, load64
from tidelog.kernel.search import FEW, count_before, gallop
from tidelog.kernel.table import DIRECTORY, MARKS, SHIFT, WORDS

LEAP, SCAN, SEEK, CALC, TEST, ABSENT, RANGE, EMIT, SCAN_EMIT = range(1, 10)

# What an instantiation reports in the extra row of `out`:
PLAIN = 0  # nothing
LOSE = 1  # the iteration it fired in: 1 + the largest level of its body
SETTLE = 2  # the iteration it fires in now that the flagged rows have level `settle_level`
LOOK_BACK = 3  # as LOSE; no row is flagged
RAW = 4  # the two largest levels, for rules that are joined in stages: of rows not flagged, flagged

# The mark of a row is its level, unless it is one of these:
DEAD_NOW = 1 << 29  # alive before this epoch, not any more
FLAG = 1 << 30  # plus the old mark: the row is in the bucket that is being processed
DEAD = (1 << 31) - 1  # dead since an earlier epoch; waits for compaction

# Columns of the `runs` table: those of kernel/table.py.
LEVELS = MARKS

# Columns of the `atoms` table.
RUN_COUNT, LIMIT, USES_LEVEL, EXCLUDES_FLAGGED = range(4)

# Fields of the `state` array.
DEPTH, DOWN, FILLED, FAILURE, WIDEN_COLUMN, WIDEN_VALUE, FUEL, SETTLE_LEVEL = range(8)
STATE_SIZE = 8

# What the interpreter returns.
DONE, FULL, WIDEN, OUT_OF_FUEL = range(4)

_HIGHEST = np.int64(2**63 - 1)
_LOWEST = np.int64(-(2**63))


@njit(cache=True, inline="always")
def _alive(atoms, runs, low, high, atom, level):
    """Return the level mark of the one live row in the atom's range, or -1 when there is none."""
    for r in range(atoms[atom, RUN_COUNT]):
        at = low[atom, level, r]
        if at < high[atom, level, r]:
            address = runs[atom, r, LEVELS]
            if address == 0:
                return np.int64(0)
            mark = load32(address, at)
            if mark <= atoms[atom, LIMIT]:
                return mark
            if FLAG <= mark < DEAD and not atoms[atom, EXCLUDES_FLAGGED]:
                return mark
    return np.int64(-1)


@njit(cache=True, inline="always")
def _narrow(
    atoms, runs, fields, cols, slots, low, high, cursor, atom, level, level_to, start, stop
):
    """Narrow the atom by the known values of the columns [level, level_to), all in one word.

    Returns whether any row is left.
    """
    key = np.int64(0)
    for c in range(start, stop):
        value = slots[cols[c, 3]]
        if value & ~cols[c, 2]:
            return False  # outside of what the column can hold
        key += value << cols[c, 1]
    word = fields[atom, level, 0]
    prefix = fields[atom, level, 3]
    unit = np.int64(1) << cols[stop - 1, 1]
    found = False
    for r in range(atoms[atom, RUN_COUNT]):
        at, end = low[atom, level, r], high[atom, level, r]
        low[atom, level_to, r] = 0
        high[atom, level_to, r] = 0
        if at < end:
            address = runs[atom, r, WORDS + word]
            target = (load64(address, at) & prefix) + key
            directory = runs[atom, r, DIRECTORY]
            if level == 0 and directory != 0:
                # The places of the first and the last row that can match.
                last = load32(directory, 0)
                entry = target >> runs[atom, r, SHIFT]
                if entry < 0 or entry > last:
                    continue
                at = load32(directory, entry + 1)
                entry = min((target + (unit - 1)) >> runs[atom, r, SHIFT], last)
                end = load32(directory, entry + 2)
                if at >= end:
                    continue
            if end - at <= FEW:
                at = count_before(address, at, end, target)
            else:
                # Successive keys are often close together: start where the last one was found.
                finger = cursor[atom, level, r]
                if at < finger < end and load64(address, finger) < target:
                    at = finger
                at = gallop(address, at, end, target)
                cursor[atom, level, r] = at
            if at < end:
                after, overflowed = checked.add(target, unit)
                if overflowed:  # the largest value there is
                    beyond = end if load64(address, at) >= target else at
                elif load64(address, at) < after:
                    beyond = gallop(address, at + 1, end, after)
                else:
                    beyond = at
                if beyond > at:
                    low[atom, level_to, r] = at
                    high[atom, level_to, r] = beyond
                    found = True
    return found


@njit(cache=True, inline="always")
def _leap(atoms, runs, fields, parts, low, high, cursor, start, stop):
    """Return whether there is a next value on which the atoms in `parts` agree, and that value.

    Each atom in turn moves to its first value that is not below the largest seen so far; when all
    of them have answered with the same value, that is it.
    """
    value = _LOWEST
    agreed = 0
    p = start
    while True:
        atom, level = parts[p, 0], parts[p, 1]
        word, shift = fields[atom, level, 0], fields[atom, level, 1]
        mask, prefix = fields[atom, level, 2], fields[atom, level, 3]
        best = _HIGHEST
        some = False
        for r in range(atoms[atom, RUN_COUNT]):
            at, end = cursor[atom, level, r], high[atom, level, r]
            if at < end:
                address = runs[atom, r, WORDS + word]
                current = load64(address, at)
                found = (current >> shift) & mask
                if found < value:
                    at = gallop(address, at, end, (current & prefix) + (value << shift))
                    cursor[atom, level, r] = at
                    if at == end:
                        continue
                    found = (load64(address, at) >> shift) & mask
                best = min(best, found)
                some = True
        if not some:
            return False, value
        if best > value or agreed == 0:
            value = best
            agreed = 1
        else:
            agreed += 1
        if agreed >= stop - start:
            return True, value
        p += 1
        if p == stop:
            p = start


@njit(cache=True, inline="always")
def _enter(atoms, runs, fields, low, high, cursor, atom, level, value):
    """Narrow the atom to `value`, at which its cursor stands, and move the cursor behind it."""
    word, shift = fields[atom, level, 0], fields[atom, level, 1]
    mask, prefix = fields[atom, level, 2], fields[atom, level, 3]
    is_last = fields[atom, level, 4]
    for r in range(atoms[atom, RUN_COUNT]):
        at, end = cursor[atom, level, r], high[atom, level, r]
        low[atom, level + 1, r] = 0
        high[atom, level + 1, r] = 0
        if at < end:
            address = runs[atom, r, WORDS + word]
            current = load64(address, at)
            if ((current >> shift) & mask) == value:
                if is_last:
                    beyond = at + 1  # rows are unique within a run
                else:
                    target = (current & prefix) + (value << shift)
                    after, overflowed = checked.add(target, np.int64(1) << shift)
                    beyond = end if overflowed else gallop(address, at + 1, end, after)
                low[atom, level + 1, r] = at
                high[atom, level + 1, r] = beyond
                cursor[atom, level, r] = beyond


@bare
def join(
    steps, parts, cols, segments, fields, atoms, runs, code, emits, pieces,
    slots, low, high, cursor, rest, flagged, out, state, mode,
):  # fmt: skip
    """Run the steps until they are done, the output is full, or the fuel is used up."""
    depth, down, filled = state[DEPTH], state[DOWN] != 0, state[FILLED]
    fuel = state[FUEL]
    capacity = out.shape[1]
    words = emits.shape[0]
    while depth >= 0:
        fuel -= 1
        if fuel <= 0:
            state[DEPTH], state[DOWN], state[FILLED] = depth, down, filled
            return OUT_OF_FUEL
        op = steps[depth, 0]
        if op == LEAP:
            start, stop = steps[depth, 2], steps[depth, 3]
            if down:
                for p in range(start, stop):
                    atom, level = parts[p, 0], parts[p, 1]
                    for r in range(atoms[atom, RUN_COUNT]):
                        cursor[atom, level, r] = low[atom, level, r]
            more, value = _leap(atoms, runs, fields, parts, low, high, cursor, start, stop)
            if not more:
                down = False
                depth -= 1
                continue
            slots[steps[depth, 1]] = value
            largest, largest_flagged = rest[depth], flagged[depth]
            alive = True
            for p in range(start, stop):
                atom, level = parts[p, 0], parts[p, 1]
                _enter(atoms, runs, fields, low, high, cursor, atom, level, value)
                if alive and fields[atom, level, 4]:
                    mark = _alive(atoms, runs, low, high, atom, level + 1)
                    if mark < 0:
                        alive = False
                    elif atoms[atom, USES_LEVEL]:
                        if mark & FLAG:
                            largest_flagged = max(largest_flagged, mark & ~FLAG)
                        else:
                            largest = max(largest, mark)
            if alive:
                depth += 1
                down = True
                rest[depth], flagged[depth] = largest, largest_flagged
            else:
                down = False  # stay: the next value of the same step
        elif op == SCAN:
            atom, level, which = steps[depth, 1], steps[depth, 2], steps[depth, 5]
            if down:
                slots[which] = 0
                for r in range(atoms[atom, RUN_COUNT]):
                    cursor[atom, level, r] = low[atom, level, r]
            r = slots[which]
            at = np.int64(-1)
            mark = np.int64(0)
            while r < atoms[atom, RUN_COUNT]:
                mark = np.int64(0)
                at = cursor[atom, level, r]
                end = high[atom, level, r]
                address = runs[atom, r, LEVELS]
                if address != 0:
                    while at < end:
                        mark = load32(address, at)
                        if mark <= atoms[atom, LIMIT]:
                            break
                        if FLAG <= mark < DEAD and not atoms[atom, EXCLUDES_FLAGGED]:
                            break
                        at += 1
                if at < end:
                    cursor[atom, level, r] = at + 1
                    break
                cursor[atom, level, r] = end
                r += 1
            if r == atoms[atom, RUN_COUNT]:
                down = False
                depth -= 1
                continue
            slots[which] = r
            for c in range(steps[depth, 3], steps[depth, 4]):
                word = load64(runs[atom, r, WORDS + cols[c, 0]], at)
                slots[cols[c, 3]] = (word >> cols[c, 1]) & cols[c, 2]
            rest[depth + 1], flagged[depth + 1] = rest[depth], flagged[depth]
            depth += 1
            if atoms[atom, USES_LEVEL]:
                if mark & FLAG:
                    flagged[depth] = max(flagged[depth], mark & ~FLAG)
                else:
                    rest[depth] = max(rest[depth], mark)
            down = True
        elif op == SCAN_EMIT:
            # Only in PLAIN mode and for heads of one word: no levels to collect.
            atom, level = steps[depth, 1], steps[depth, 2]
            if down:
                for r in range(atoms[atom, RUN_COUNT]):
                    cursor[atom, level, r] = low[atom, level, r]
            base = np.int64(0)
            for e in range(words):
                base += slots[emits[e, 0]] << emits[e, 2]
            target = out[0]
            pieces_count = pieces.shape[0]
            for r in range(atoms[atom, RUN_COUNT]):
                at, end = cursor[atom, level, r], high[atom, level, r]
                if at >= end:
                    continue
                marks = runs[atom, r, LEVELS]
                stop = min(end, at + capacity - filled)
                address = runs[atom, r, WORDS + pieces[0, 0]]
                shift, mask, into = pieces[0, 1], pieces[0, 2], pieces[0, 3]
                if marks == 0 and pieces_count == 1:
                    for i in range(at, stop):
                        target[filled] = base + (((load64(address, i) >> shift) & mask) << into)
                        filled += 1
                else:
                    limit = atoms[atom, LIMIT]
                    for i in range(at, stop):
                        if marks == 0 or load32(marks, i) <= limit:
                            key = base
                            for q in range(pieces_count):
                                word = load64(runs[atom, r, WORDS + pieces[q, 0]], i)
                                key += ((word >> pieces[q, 1]) & pieces[q, 2]) << pieces[q, 3]
                            target[filled] = key
                            filled += 1
                cursor[atom, level, r] = stop
                if stop < end:
                    state[DEPTH], state[DOWN], state[FILLED] = depth, 0, filled
                    state[FUEL] = fuel
                    return FULL
            down = False
            depth -= 1
        elif op == EMIT:
            if down:
                if filled == capacity:
                    state[DEPTH], state[DOWN], state[FILLED] = depth, 1, filled
                    state[FUEL] = fuel
                    return FULL
                fires = np.int64(0)
                counts = True
                if mode == SETTLE:
                    # Accounted before when the bucket's rows, at their old levels, did not decide.
                    counts = rest[depth] < flagged[depth]
                    fires = 1 + max(state[SETTLE_LEVEL], rest[depth])
                elif mode == RAW:
                    fires = flagged[depth]
                elif mode != PLAIN:
                    fires = 1 + max(rest[depth], flagged[depth])
                if counts:
                    height = out.shape[0]
                    for w in range(height):
                        out[w, filled] = 0
                    for e in range(words):
                        value = slots[emits[e, 0]]
                        if value & ~emits[e, 3]:
                            state[WIDEN_COLUMN], state[WIDEN_VALUE] = e, value
                            return WIDEN
                        out[emits[e, 1], filled] += value << emits[e, 2]
                    if mode != PLAIN:
                        out[height - 1, filled] = fires
                    if mode == RAW:
                        out[height - 2, filled] = rest[depth]
                    filled += 1
            down = False
            depth -= 1
        elif op == RANGE:
            into, following = steps[depth, 1], steps[depth, 5]
            step = slots[steps[depth, 4]]
            stop = slots[steps[depth, 3]]
            more = step != 0
            if not more:
                state[FAILURE] = DIVISION  # a range with step 0 has no end
            if down:
                number = slots[steps[depth, 2]]
            else:
                number, overflowed = checked.add(slots[following], step)
                more = more and not overflowed
            if more and ((step > 0 and number < stop) or (step < 0 and number > stop)):
                slots[following] = number
                slots[into] = number
                rest[depth + 1], flagged[depth + 1] = rest[depth], flagged[depth]
                depth += 1
                down = True
            else:
                down = False
                depth -= 1
        elif not down:
            depth -= 1  # the steps below have one solution at most
        else:
            passed = True
            largest, largest_flagged = rest[depth], flagged[depth]
            if op == SEEK:
                atom, level_to = steps[depth, 1], steps[depth, 3]
                passed = _narrow(
                    atoms, runs, fields, cols, slots, low, high, cursor,
                    atom, steps[depth, 2], level_to, steps[depth, 4], steps[depth, 5],
                )  # fmt: skip
                if passed and fields[atom, level_to - 1, 4]:
                    mark = _alive(atoms, runs, low, high, atom, level_to)
                    if mark < 0:
                        passed = False
                    elif atoms[atom, USES_LEVEL]:
                        if mark & FLAG:
                            largest_flagged = max(largest_flagged, mark & ~FLAG)
                        else:
                            largest = max(largest, mark)
            elif op == ABSENT:
                atom = steps[depth, 1]
                for g in range(steps[depth, 2], steps[depth, 3]):
                    if passed:
                        passed = _narrow(
                            atoms, runs, fields, cols, slots, low, high, cursor,
                            atom, segments[g, 0], segments[g, 1], segments[g, 2], segments[g, 3],
                        )  # fmt: skip
                        if passed and fields[atom, segments[g, 1] - 1, 4]:
                            passed = _alive(atoms, runs, low, high, atom, segments[g, 1]) >= 0
                passed = not passed
            else:  # CALC or TEST
                failure = run_code(code, steps[depth, 1], steps[depth, 2], slots)
                if failure:
                    # Whether it matters is decided outside, from the rule as a whole.
                    state[FAILURE] = failure
                    passed = False
                elif op == TEST:
                    passed = slots[steps[depth, 3]] != 0
            if passed:
                depth += 1
                rest[depth], flagged[depth] = largest, largest_flagged
            else:
                down = False
                depth -= 1
    state[DEPTH], state[DOWN], state[FILLED], state[FUEL] = -1, 0, filled, fuel
    return DONE
