"""Leapfrog triejoin: one interpreter for all rules.

A rule is compiled into *steps* (join/compiler.py). The interpreter walks them depth first: a step
that finds a value goes down to the next step; a step without a further value goes back up to the
previous one. An atom is read through the sorted runs of one of its orders. Narrowing it by the
value of its next column leaves a range of rows in each run. The number of columns by which an atom
is narrowed is its *depth* in the trie.

    LEAP      bind a variable to the next value on which several atoms agree
    SCAN      bind the remaining columns of an atom, row by row
    SEEK      narrow an atom by values that are known already
    BOUND     narrow an atom to the rows whose next column is above or below a known value
    CALC      compute values (kernel/machine.py)
    TEST      go on only if a computed value is true
    ABSENT    go on only if no row of an atom matches known values
    RANGE     bind a variable to the numbers of a range
    EMIT      write the head
    SCAN_EMIT a SCAN whose rows are written to the head at once: the innermost loop of most rules

The mark of a row (kernel/marks.py) decides which versions of a relation show it. For recursive
rules (`mode` other than PLAIN) its level also decides to which iteration an instantiation belongs;
see maintain/elastic.py.

Output goes to `out` in chunks. When it is full the interpreter returns, and continues from there
when it is called again.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from tidelog.kernel import checked
from tidelog.kernel import join_layout as k
from tidelog.kernel.bounds import limit_code
from tidelog.kernel.compiling import bare_kernel_without_gil, inlined, kernel
from tidelog.kernel.descriptors import DIRECTORY, MARKS, SHIFT, SIZE, WORDS
from tidelog.kernel.machine import DIVISION, run_code
from tidelog.kernel.marks import DEAD, FLAG
from tidelog.kernel.pointers import load32, load64
from tidelog.kernel.search import FEW, count_before, gallop
from tidelog.kernel.signatures import declared

_HIGHEST = np.int64(2**63 - 1)
_LOWEST = np.int64(-(2**63))


@inlined
def _is_read(mark, limit, excludes_flagged):
    """Return whether an atom reads a row with this mark: one up to its limit, or a flagged one."""
    return mark <= limit or (FLAG <= mark < DEAD and not excludes_flagged)


@inlined
def _alive(atoms, runs, low, high, atom, depth):
    """Return the mark of the one live row in the atom's range, or -1 when there is none."""
    for r in range(atoms[atom, k.RUN_COUNT]):
        at = low[atom, depth, r]
        if at < high[atom, depth, r]:
            address = runs[atom, r, MARKS]
            if address == 0:
                return np.int64(0)
            mark = load32(address, at)
            if _is_read(mark, atoms[atom, k.LIMIT], atoms[atom, k.EXCLUDES_FLAGGED]):
                return mark
    return np.int64(-1)


@inlined
def _narrow(
    atoms, runs, fields, columns, slots, low, high, cursor, atom, depth, depth_to, start, stop
):
    """Narrow the atom by the known values of the columns [depth, depth_to), all in one word.

    Returns whether any row is left.
    """
    key = np.int64(0)
    for c in range(start, stop):
        value = slots[columns[c, k.COLUMN_SLOT]]
        if value & ~columns[c, k.COLUMN_MASK]:
            return False  # outside of what the column can hold
        key += value << columns[c, k.COLUMN_SHIFT]
    word = fields[atom, depth, k.FIELD_WORD]
    prefix = fields[atom, depth, k.FIELD_PREFIX]
    unit = np.int64(1) << columns[stop - 1, k.COLUMN_SHIFT]
    found = False
    for r in range(atoms[atom, k.RUN_COUNT]):
        at, end = low[atom, depth, r], high[atom, depth, r]
        low[atom, depth_to, r] = 0
        high[atom, depth_to, r] = 0
        if at < end:
            address = runs[atom, r, WORDS + word]
            target = (load64(address, at) & prefix) + key
            directory = runs[atom, r, DIRECTORY]
            if depth == 0 and directory != 0:
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
                finger = cursor[atom, depth, r]
                if at < finger < end and load64(address, finger) < target:
                    at = finger
                at = gallop(address, at, end, target)
                cursor[atom, depth, r] = at
            if at < end:
                after, overflowed = checked.add(target, unit)
                if overflowed:  # the largest value there is
                    beyond = end if load64(address, at) >= target else at
                elif load64(address, at) < after:
                    beyond = gallop(address, at + 1, end, after)
                else:
                    beyond = at
                if beyond > at:
                    low[atom, depth_to, r] = at
                    high[atom, depth_to, r] = beyond
                    found = True
    return found


@inlined
def _bound(atoms, runs, fields, low, high, atom, depth, ordinal, offset, bias, kind):
    """Narrow the atom by a bound of the column at `depth`, which stays the next one.

    The result is at the next depth: the column has a place in `fields` for every bound, and its
    own behind them. Returns whether any row is left.
    """
    below = (kind & k.BELOW) != 0
    value, before, beyond = limit_code(
        ordinal, offset, bias, kind, fields[atom, depth, k.FIELD_MASK]
    )
    found = False
    word, shift = fields[atom, depth, k.FIELD_WORD], fields[atom, depth, k.FIELD_SHIFT]
    prefix = fields[atom, depth, k.FIELD_PREFIX]
    for r in range(atoms[atom, k.RUN_COUNT]):
        at, end = low[atom, depth, r], high[atom, depth, r]
        if at < end:
            if beyond:
                place = end
            elif before:
                place = at
            else:
                address = runs[atom, r, WORDS + word]
                target = (load64(address, at) & prefix) + (value << shift)
                if below and load64(address, end - 1) < target:
                    place = end
                else:
                    place = gallop(address, at, end, target)
            if below:
                end = place
            else:
                at = place
        found = found or at < end
        low[atom, depth + 1, r] = at
        high[atom, depth + 1, r] = end
    return found


@inlined
def _leap(atoms, runs, fields, parts, low, high, cursor, start, stop):
    """Return whether there is a next value on which the atoms in `parts` agree, and that value.

    Each atom in turn moves to its first value that is not below the largest one seen so far. When
    all of them have reached the same value, that is it.
    """
    value = _LOWEST
    agreed = 0
    p = start
    while True:
        atom, depth = parts[p, k.PART_ATOM], parts[p, k.PART_DEPTH]
        word, shift = fields[atom, depth, k.FIELD_WORD], fields[atom, depth, k.FIELD_SHIFT]
        mask, prefix = fields[atom, depth, k.FIELD_MASK], fields[atom, depth, k.FIELD_PREFIX]
        best = _HIGHEST
        some = False
        for r in range(atoms[atom, k.RUN_COUNT]):
            at, end = cursor[atom, depth, r], high[atom, depth, r]
            if at < end:
                address = runs[atom, r, WORDS + word]
                current = load64(address, at)
                found = (current >> shift) & mask
                if found < value:
                    at = gallop(address, at, end, (current & prefix) + (value << shift))
                    cursor[atom, depth, r] = at
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


@inlined
def _enter(atoms, runs, fields, low, high, cursor, atom, depth, value):
    """Narrow the atom to `value`, where its cursor is, and move the cursor past it."""
    word, shift = fields[atom, depth, k.FIELD_WORD], fields[atom, depth, k.FIELD_SHIFT]
    mask, prefix = fields[atom, depth, k.FIELD_MASK], fields[atom, depth, k.FIELD_PREFIX]
    is_last = fields[atom, depth, k.FIELD_IS_LAST]
    for r in range(atoms[atom, k.RUN_COUNT]):
        at, end = cursor[atom, depth, r], high[atom, depth, r]
        low[atom, depth + 1, r] = 0
        high[atom, depth + 1, r] = 0
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
                low[atom, depth + 1, r] = at
                high[atom, depth + 1, r] = beyond
                cursor[atom, depth, r] = beyond


@bare_kernel_without_gil
def join(
    steps, parts, columns, segments, fields, atoms, runs, code, emits, pieces,
    slots, low, high, cursor, rest, flagged, out, state, mode,
):  # fmt: skip
    """Run the steps until they are done, the output is full, or the fuel is used up."""
    step, down, filled = state[k.AT_STEP], state[k.DOWN] != 0, state[k.FILLED]
    fuel = state[k.FUEL]
    capacity = out.shape[1]
    words = emits.shape[0]
    while step >= 0:
        fuel -= 1
        if fuel <= 0:
            state[k.AT_STEP], state[k.DOWN], state[k.FILLED] = step, down, filled
            return k.OUT_OF_FUEL
        op = steps[step, k.OP]
        if op == k.LEAP:
            start, stop = steps[step, k.LEAP_START], steps[step, k.LEAP_STOP]
            if down:
                for p in range(start, stop):
                    atom, depth = parts[p, k.PART_ATOM], parts[p, k.PART_DEPTH]
                    for r in range(atoms[atom, k.RUN_COUNT]):
                        cursor[atom, depth, r] = low[atom, depth, r]
            more, value = _leap(atoms, runs, fields, parts, low, high, cursor, start, stop)
            if not more:
                down = False
                step -= 1
                continue
            slots[steps[step, k.LEAP_SLOT]] = value
            largest, largest_flagged = rest[step], flagged[step]
            alive = True
            for p in range(start, stop):
                atom, depth = parts[p, k.PART_ATOM], parts[p, k.PART_DEPTH]
                _enter(atoms, runs, fields, low, high, cursor, atom, depth, value)
                if alive and fields[atom, depth, k.FIELD_IS_LAST]:
                    mark = _alive(atoms, runs, low, high, atom, depth + 1)
                    if mark < 0:
                        alive = False
                    elif atoms[atom, k.USES_LEVEL]:
                        if mark & FLAG:
                            largest_flagged = max(largest_flagged, mark & ~FLAG)
                        else:
                            largest = max(largest, mark)
            if alive:
                step += 1
                down = True
                rest[step], flagged[step] = largest, largest_flagged
            else:
                down = False  # stay: the next value of the same step
        elif op == k.SCAN:
            atom, depth = steps[step, k.SCAN_ATOM], steps[step, k.SCAN_DEPTH]
            which = steps[step, k.SCAN_RUN]
            if down:
                slots[which] = 0
                for r in range(atoms[atom, k.RUN_COUNT]):
                    cursor[atom, depth, r] = low[atom, depth, r]
            r = slots[which]
            at = np.int64(-1)
            mark = np.int64(0)
            while r < atoms[atom, k.RUN_COUNT]:
                mark = np.int64(0)
                at = cursor[atom, depth, r]
                end = high[atom, depth, r]
                address = runs[atom, r, MARKS]
                if address != 0:
                    while at < end:
                        mark = load32(address, at)
                        if _is_read(mark, atoms[atom, k.LIMIT], atoms[atom, k.EXCLUDES_FLAGGED]):
                            break
                        at += 1
                if at < end:
                    cursor[atom, depth, r] = at + 1
                    break
                cursor[atom, depth, r] = end
                r += 1
            if r == atoms[atom, k.RUN_COUNT]:
                down = False
                step -= 1
                continue
            slots[which] = r
            for c in range(steps[step, k.SCAN_START], steps[step, k.SCAN_STOP]):
                word = load64(runs[atom, r, WORDS + columns[c, k.COLUMN_WORD]], at)
                value = (word >> columns[c, k.COLUMN_SHIFT]) & columns[c, k.COLUMN_MASK]
                slots[columns[c, k.COLUMN_SLOT]] = value
            rest[step + 1], flagged[step + 1] = rest[step], flagged[step]
            step += 1
            if atoms[atom, k.USES_LEVEL]:
                if mark & FLAG:
                    flagged[step] = max(flagged[step], mark & ~FLAG)
                else:
                    rest[step] = max(rest[step], mark)
            down = True
        elif op == k.SCAN_EMIT:
            # Only in PLAIN mode and for heads of one word: no levels to collect.
            atom, depth = steps[step, k.SCAN_ATOM], steps[step, k.SCAN_DEPTH]
            if down:
                for r in range(atoms[atom, k.RUN_COUNT]):
                    cursor[atom, depth, r] = low[atom, depth, r]
            if mode == k.COUNT:
                # A range of rows is counted without being read, unless some of them are dead.
                limit = atoms[atom, k.LIMIT]
                for r in range(atoms[atom, k.RUN_COUNT]):
                    at, end = low[atom, depth, r], high[atom, depth, r]
                    marks = runs[atom, r, MARKS]
                    if marks == 0:
                        filled += end - at
                    else:
                        for i in range(at, end):
                            filled += np.int64(load32(marks, i) <= limit)
                down = False
                step -= 1
                continue
            if mode == k.RANGES:
                # The atom has one run without marks.
                if low[atom, depth, 0] < high[atom, depth, 0]:
                    if filled == capacity:
                        state[k.AT_STEP], state[k.DOWN], state[k.FILLED] = step, 1, filled
                        state[k.FUEL] = fuel
                        return k.FULL
                    for e in range(words):
                        out[e, filled] = slots[emits[e, k.EMIT_SLOT]]
                    out[words, filled] = low[atom, depth, 0]
                    out[words + 1, filled] = high[atom, depth, 0]
                    filled += 1
                down = False
                step -= 1
                continue
            base = np.int64(0)
            for e in range(words):
                base += slots[emits[e, k.EMIT_SLOT]] << emits[e, k.EMIT_SHIFT]
            target = out[0]
            pieces_count = pieces.shape[0]
            for r in range(atoms[atom, k.RUN_COUNT]):
                at, end = cursor[atom, depth, r], high[atom, depth, r]
                if at >= end:
                    continue
                marks = runs[atom, r, MARKS]
                stop = min(end, at + capacity - filled)
                address = runs[atom, r, WORDS + pieces[0, k.PIECE_WORD]]
                shift, mask = pieces[0, k.PIECE_SHIFT], pieces[0, k.PIECE_MASK]
                into = pieces[0, k.PIECE_INTO]
                if marks == 0 and pieces_count == 1:
                    for i in range(at, stop):
                        target[filled] = base + (((load64(address, i) >> shift) & mask) << into)
                        filled += 1
                else:
                    limit, excludes = atoms[atom, k.LIMIT], atoms[atom, k.EXCLUDES_FLAGGED]
                    for i in range(at, stop):
                        if marks == 0 or _is_read(load32(marks, i), limit, excludes):
                            key = base
                            for q in range(pieces_count):
                                word = load64(runs[atom, r, WORDS + pieces[q, k.PIECE_WORD]], i)
                                piece = (word >> pieces[q, k.PIECE_SHIFT]) & pieces[q, k.PIECE_MASK]
                                key += piece << pieces[q, k.PIECE_INTO]
                            target[filled] = key
                            filled += 1
                cursor[atom, depth, r] = stop
                if stop < end:
                    state[k.AT_STEP], state[k.DOWN], state[k.FILLED] = step, 0, filled
                    state[k.FUEL] = fuel
                    return k.FULL
            down = False
            step -= 1
        elif op == k.EMIT:
            if down and mode == k.COUNT:
                filled += 1
            elif down:
                if filled == capacity:
                    state[k.AT_STEP], state[k.DOWN], state[k.FILLED] = step, 1, filled
                    state[k.FUEL] = fuel
                    return k.FULL
                fires = np.int64(0)
                counts = True
                if mode == k.RANGES:
                    for e in range(words):
                        out[e, filled] = slots[emits[e, k.EMIT_SLOT]]
                    out[words, filled], out[words + 1, filled] = 0, 1
                    filled += 1
                    counts = False
                elif mode == k.SETTLE:
                    # If the old levels of the flagged rows did not decide, it was counted before.
                    counts = rest[step] < flagged[step]
                    fires = 1 + max(state[k.SETTLE_LEVEL], rest[step])
                elif mode == k.RAW:
                    fires = flagged[step]
                elif mode != k.PLAIN:
                    fires = 1 + max(rest[step], flagged[step])
                if counts:
                    height = out.shape[0]
                    for w in range(height):
                        out[w, filled] = 0
                    for e in range(words):
                        value = slots[emits[e, k.EMIT_SLOT]]
                        if value & ~emits[e, k.EMIT_MASK]:
                            state[k.WIDEN_COLUMN], state[k.WIDEN_VALUE] = e, value
                            return k.WIDEN
                        out[emits[e, k.EMIT_WORD], filled] += value << emits[e, k.EMIT_SHIFT]
                    if mode != k.PLAIN:
                        out[height - 1, filled] = fires
                    if mode == k.RAW:
                        out[height - 2, filled] = rest[step]
                    filled += 1
            down = False
            step -= 1
        elif op == k.RANGE:
            into, following = steps[step, k.RANGE_INTO], steps[step, k.RANGE_NEXT]
            increment = slots[steps[step, k.RANGE_INCREMENT]]
            stop = slots[steps[step, k.RANGE_STOP]]
            more = increment != 0
            if not more:
                state[k.FAILURE] = DIVISION  # a range with step 0 has no end
            if down:
                number = slots[steps[step, k.RANGE_START]]
            else:
                number, overflowed = checked.add(slots[following], increment)
                more = more and not overflowed
            if more and ((increment > 0 and number < stop) or (increment < 0 and number > stop)):
                slots[following] = number
                slots[into] = number
                rest[step + 1], flagged[step + 1] = rest[step], flagged[step]
                step += 1
                down = True
            else:
                down = False
                step -= 1
        elif not down:
            step -= 1  # the steps below have one solution at most
        else:
            passed = True
            largest, largest_flagged = rest[step], flagged[step]
            if op == k.SEEK:
                atom = steps[step, k.SEEK_ATOM]
                depth, depth_to = steps[step, k.SEEK_DEPTH], steps[step, k.SEEK_DEPTH_TO]
                passed = _narrow(
                    atoms, runs, fields, columns, slots, low, high, cursor,
                    atom, depth, depth_to, steps[step, k.SEEK_START], steps[step, k.SEEK_STOP],
                )  # fmt: skip
                if passed and fields[atom, depth_to - 1, k.FIELD_IS_LAST]:
                    mark = _alive(atoms, runs, low, high, atom, depth_to)
                    if mark < 0:
                        passed = False
                    elif atoms[atom, k.USES_LEVEL]:
                        if mark & FLAG:
                            largest_flagged = max(largest_flagged, mark & ~FLAG)
                        else:
                            largest = max(largest, mark)
            elif op == k.BOUND:
                passed = _bound(
                    atoms, runs, fields, low, high, steps[step, k.BOUND_ATOM],
                    steps[step, k.BOUND_DEPTH], slots[steps[step, k.BOUND_SLOT]],
                    steps[step, k.BOUND_OFFSET], steps[step, k.BOUND_BIAS],
                    steps[step, k.BOUND_KIND],
                )  # fmt: skip
            elif op == k.ABSENT:
                atom = steps[step, k.ABSENT_ATOM]
                for g in range(steps[step, k.ABSENT_START], steps[step, k.ABSENT_STOP]):
                    if passed:
                        depth = segments[g, k.SEGMENT_DEPTH]
                        depth_to = segments[g, k.SEGMENT_DEPTH_TO]
                        passed = _narrow(
                            atoms, runs, fields, columns, slots, low, high, cursor, atom, depth,
                            depth_to, segments[g, k.SEGMENT_START], segments[g, k.SEGMENT_STOP],
                        )  # fmt: skip
                        if passed and fields[atom, depth_to - 1, k.FIELD_IS_LAST]:
                            passed = _alive(atoms, runs, low, high, atom, depth_to) >= 0
                passed = not passed
            else:  # CALC or TEST
                failure = run_code(code, steps[step, k.CODE_START], steps[step, k.CODE_STOP], slots)
                if failure:
                    # Whether this is an error depends on the whole rule (join/failures.py).
                    state[k.FAILURE] = failure
                    passed = False
                elif op == k.TEST:
                    passed = slots[steps[step, k.CODE_RESULT]] != 0
            if passed:
                step += 1
                rest[step], flagged[step] = largest, largest_flagged
            else:
                down = False
                step -= 1
    state[k.AT_STEP], state[k.DOWN], state[k.FILLED], state[k.FUEL] = -1, 0, filled, fuel
    return k.DONE


@cache
def address_of_join() -> int:
    """Return the address of the compiled join, for kernels that call it (kernel/described.py)."""
    types = declared()["join.join"][0]
    join.compile(types)  # or loads it
    found = join.overloads[types]
    address: int = found.library.get_pointer_to_function(found.fndesc.llvm_func_name)
    assert address != 0
    assert str(found.signature.return_type) == "int64"
    return address


@kernel
def read_runs(
    runs, high, atoms, atom, descriptors, limit, uses_level, excludes_flagged, ignores_marks
):  # fmt: skip
    """Make an atom read runs, in one call: several array assignments would take longer.

    The join of one changed row takes a microsecond, so the time around it counts.
    """
    for r in range(descriptors.shape[0]):
        for c in range(descriptors.shape[1]):
            runs[atom, r, c] = descriptors[r, c]
        if ignores_marks:
            runs[atom, r, MARKS] = 0
        high[atom, 0, r] = descriptors[r, SIZE]
    atoms[atom, k.RUN_COUNT] = descriptors.shape[0]
    atoms[atom, k.LIMIT] = limit
    atoms[atom, k.USES_LEVEL] = uses_level
    atoms[atom, k.EXCLUDES_FLAGGED] = excludes_flagged


@kernel
def begin(state, slots, initial, cursor, rest, flagged, settle_level):
    """Move a join to its beginning."""
    # Loops, not slices: Numba took four seconds to compile the assignments of whole arrays.
    for i in range(state.shape[0]):
        state[i] = 0
    state[k.DOWN] = 1
    state[k.SETTLE_LEVEL] = settle_level
    for i in range(slots.shape[0]):
        slots[i] = initial[i]
    for a in range(cursor.shape[0]):
        for c in range(cursor.shape[1]):
            for r in range(cursor.shape[2]):
                cursor[a, c, r] = 0
    rest[0] = 0
    flagged[0] = -1
