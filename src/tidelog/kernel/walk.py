"""A linear recursion, repaired level by level in one call (maintain/walk.py).

If no rule has two atoms of the layer, an instantiation has at most one row above level 0, and fires
one level above it. So the rows of each level lead to those of the next, with nothing to decide in
between. The kernel joins the rules from the rows of a level, and queues the heads from which the
next level starts.

A rule's join is a row of `programs` (kernel/join_layout.py): its driver, and the address and shape
of each of its arrays.

The kernel returns when it is done, or with a status when it needs more room; called again, it goes
on from the same place.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import join_layout as k
from tidelog.kernel.compiling import FALSE, TRUE, ZERO, bare_helper, helper, kernel
from tidelog.kernel.described import array1, array2, array3, call_join
from tidelog.kernel.descriptors import (
    DIRECTORY,
    MARKS,
    MOST_RUNS,
    SHIFT,
    SIZE,
    WIDE,
    WORDS,
    count_of,
    set_count,
)  # fmt: skip
from tidelog.kernel.join import begin
from tidelog.kernel.marks import DEAD_NOW
from tidelog.kernel.pointers import address64, load64
from tidelog.kernel.repair import COUNT, LEVEL, find, place

# What the kernel returns.
DONE, AGAIN, ROOM, WIDER_VALUE, WIDER_COUNTS, LARGER_HASH, FAILED, MORE = range(8)

# Fields of the walk's state. The queue has the rows of all levels; those of the current level are
# from START to END, those of the next one from END to QUEUED.
(
    AT_LEVEL, START, END, QUEUED, PENDING, PROGRAM, PHASE, AT, HELD, NOTED, USED, FOUND, LEVELS,
) = range(13)  # fmt: skip
STATE_SIZE = 13

_IDLE, _JOINING, _ENDING = range(3)  # phases of a program
_LOSE = np.int64(k.LOSE)  # the mode of all joins here; as a literal, Numba would compile it again
_FUEL = 2_000_000
_A_WHILE = 200_000  # instantiations until the caller looks at the clock
_NEVER = np.int64(DEAD_NOW)  # the level of rows that do not exist
_MOST_NARROW = (1 << 31) - 1


@bare_helper
def _begin(program, by_column, queue, start, end, arranged):
    """Begin a join from the rows of a level, in the layout of its driver."""
    atom, words, n = program[k.DRIVER], program[k.DRIVER_WORDS], end - start
    columns = by_column.shape[0]
    fields = program[k.DRIVER_FIELDS]  # three numbers for each column
    for i in range(n):
        for w in range(words):
            arranged[w, i] = 0
        for c in range(columns):
            value = (queue[by_column[c, 0], start + i] >> by_column[c, 1]) & by_column[c, 2]
            arranged[load64(fields, 3 * c), i] += value << load64(fields, 3 * c + 1)
    atoms, runs = array2(program, k.ATOMS), array3(program, k.RUNS)
    atoms[atom, k.RUN_COUNT] = 1
    atoms[atom, k.LIMIT] = 0
    atoms[atom, k.USES_LEVEL] = 0
    atoms[atom, k.EXCLUDES_FLAGGED] = 0
    runs[atom, 0, SIZE] = n
    runs[atom, 0, MARKS] = 0
    runs[atom, 0, DIRECTORY] = 0
    runs[atom, 0, SHIFT] = 0
    for w in range(words):
        runs[atom, 0, WORDS + w] = address64(arranged) + 8 * w * arranged.shape[1]
    low, high = array3(program, k.LOW), array3(program, k.HIGH)
    low[atom, 0, 0] = 0
    high[atom, 0, 0] = n
    begin(
        array1(program, k.STATE), array1(program, k.SLOTS), array1(program, k.INITIAL),
        array3(program, k.CURSOR), array1(program, k.REST), array1(program, k.FLAGGED), ZERO,
    )  # fmt: skip


@bare_helper
def _join(program, out):
    """Continue the join; return its status, how much it has written, and whether it failed."""
    state = array1(program, k.STATE)
    state[k.FUEL] = _FUEL
    status = call_join(
        program[k.INTERPRETER],
        array2(program, k.STEPS), array2(program, k.PARTS), array2(program, k.COLUMNS),
        array2(program, k.SEGMENTS), array3(program, k.FIELDS), array2(program, k.ATOMS),
        array3(program, k.RUNS), array2(program, k.CODE), array2(program, k.EMITS),
        array2(program, k.PIECES), array1(program, k.SLOTS), array3(program, k.LOW),
        array3(program, k.HIGH), array3(program, k.CURSOR), array1(program, k.REST),
        array1(program, k.FLAGGED), out, state, _LOSE,
    )  # fmt: skip
    filled = state[k.FILLED]
    if status != k.OUT_OF_FUEL:
        state[k.FILLED] = 0
    return status, filled, state[k.FAILURE] != 0


@bare_helper
def _next_chunk(programs, by_column, queue, arranged, out, state):
    """Run the current program until it has some output, or has ended."""
    program = programs[state[PROGRAM]]
    if state[PHASE] == _IDLE:
        if state[END] - state[START] > arranged.shape[1]:
            return ROOM
        _begin(program, by_column, queue, state[START], state[END], arranged)
        state[PHASE] = _JOINING
    status, filled, failed = _join(program, out)
    if status == k.WIDEN:
        return WIDER_VALUE
    if status == k.OUT_OF_FUEL:
        return AGAIN
    state[AT] = 0
    state[HELD] = filled
    state[FOUND] += filled
    if status == k.DONE:
        state[PHASE] = _ENDING
        if failed:
            return FAILED
    return DONE


@bare_helper
def _go_on(programs, by_column, queue, arranged, out, state):
    """Continue the current program, or go on to the next one if it has ended."""
    if state[PHASE] != _ENDING:
        return _next_chunk(programs, by_column, queue, arranged, out, state)
    state[PHASE] = _IDLE
    state[PROGRAM] += 1
    return AGAIN if state[FOUND] > _A_WHILE else DONE


@helper
def _queue(queue, at, words, rows, i):
    for w in range(words):
        queue[w, at] = rows[w, i]


@helper
def _next_level(first_rows, first_levels, words, queue, keys, waiting, is_settling, state):
    """Go on to the next level with rows: those in the queue, and first rows, which are queued now.

    A first row that waits to be settled may have got a lower level by now. Then it has been queued.
    """
    if state[QUEUED] > state[END]:
        level = state[AT_LEVEL] + 1
    elif state[PENDING] < first_levels.shape[0]:
        level = first_levels[state[PENDING]]
    else:
        return DONE
    state[AT_LEVEL] = level - 1  # until all first rows of the level are queued
    while state[PENDING] < first_levels.shape[0] and first_levels[state[PENDING]] == level:
        if state[QUEUED] == queue.shape[1]:
            return ROOM
        i = state[PENDING]
        if not is_settling or waiting[LEVEL, place(keys, waiting, words, first_rows, i)] == level:
            _queue(queue, state[QUEUED], words, first_rows, i)
            state[QUEUED] += 1
        state[PENDING] += 1
    state[AT_LEVEL] = level
    state[START], state[END] = state[END], state[QUEUED]
    return MORE


@helper
def _lose_rows(runs, words, out, queue, undo, state):
    """Subtract lost instantiations from the counts of their heads; queue those that reach 0."""
    fingers = np.zeros(MOST_RUNS, np.int64)
    level = state[AT_LEVEL] + 1
    for i in range(state[AT], state[HELD]):
        if state[QUEUED] == queue.shape[1] or state[NOTED] == undo.shape[1]:
            state[AT] = i
            return ROOM
        r, at, mark = find(runs, words, out, i, fingers)
        if r < 0 or mark != level:
            continue  # only what fired at the row's own level was counted
        count = count_of(runs, r, at)
        assert count > 0
        undo[0, state[NOTED]] = r
        undo[1, state[NOTED]] = at
        undo[2, state[NOTED]] = count
        state[NOTED] += 1
        set_count(runs, r, at, count - 1)
        if count == 1:
            _queue(queue, state[QUEUED], words, out, i)
            state[QUEUED] += 1
    state[AT] = state[HELD]
    return DONE


@kernel
def lose(
    programs, runs, words, by_column, first_rows, first_levels, queue, arranged, out, undo, state,
):  # fmt: skip
    """Remove the first rows, which are sorted by level, and all rows that depend on them."""
    while True:
        if state[PROGRAM] == programs.shape[0]:
            # No row waits here, so `keys` and `waiting` are not read: any array will do.
            status = _next_level(first_rows, first_levels, words, queue, queue, queue, FALSE, state)
            if status != MORE:
                return status
            state[PROGRAM] = 0
            state[LEVELS] += 1
            continue
        if state[AT] < state[HELD]:
            status = _lose_rows(runs, words, out, queue, undo, state)
            if status != DONE:
                return status
        status = _go_on(programs, by_column, queue, arranged, out, state)
        if status != DONE:
            return status


@helper
def _offer_rows(runs, tail, words, out, queue, keys, waiting, undo, state):
    """Apply instantiations to their heads: a smaller level wins, an equal one adds to the count.

    A head that gets a level is queued, and waits in the hash table with its count.
    """
    fingers = np.zeros(MOST_RUNS, np.int64)
    fires = state[AT_LEVEL] + 1
    room = waiting.shape[1] >> 1
    for i in range(state[AT], state[HELD]):
        state[AT] = i
        if state[QUEUED] == queue.shape[1] or state[NOTED] == undo.shape[1]:
            return ROOM
        if state[USED] >= room:
            return LARGER_HASH
        r, found, mark = find(runs, words, out, i, fingers)
        held = mark if mark < DEAD_NOW else _NEVER
        at = place(keys, waiting, words, out, i)
        is_waiting = waiting[LEVEL, at] >= 0
        current = min(held, waiting[LEVEL, at]) if is_waiting else held
        if fires < current:
            if not is_waiting:
                state[USED] += 1
                _queue(keys, at, words, out, i)
            waiting[LEVEL, at] = fires
            waiting[COUNT, at] = 1
            _queue(queue, state[QUEUED], words, out, i)
            state[QUEUED] += 1
        elif fires == current:
            if is_waiting and waiting[LEVEL, at] == current:
                waiting[COUNT, at] += 1
            else:
                count = count_of(runs, r, found)
                if count >= _MOST_NARROW and not runs[r, WIDE]:
                    return WIDER_COUNTS
                if r != tail:
                    undo[0, state[NOTED]] = r
                    undo[1, state[NOTED]] = found
                    undo[2, state[NOTED]] = count
                    state[NOTED] += 1
                set_count(runs, r, found, count + 1)
    state[AT] = state[HELD]
    return DONE


@kernel
def settle(
    programs, runs, tail, words, by_column, first_rows, first_levels, queue, levels, counts,
    arranged, out, keys, waiting, undo, state,
):  # fmt: skip
    """Settle the first rows, which wait already and are sorted by level, and all they lead to.

    Writes level and count beside each row of the queue.
    """
    while True:
        if state[PROGRAM] == programs.shape[0]:
            status = _next_level(first_rows, first_levels, words, queue, keys, waiting, TRUE, state)
            if status != MORE:
                return status
            level = state[AT_LEVEL]
            for i in range(state[START], state[END]):
                levels[i] = level
                counts[i] = waiting[COUNT, place(keys, waiting, words, queue, i)]
            if state[START] == state[END]:
                continue
            state[PROGRAM] = 0
            state[LEVELS] += 1
            continue
        if state[AT] < state[HELD]:
            status = _offer_rows(runs, tail, words, out, queue, keys, waiting, undo, state)
            if status != DONE:
                return status
        status = _go_on(programs, by_column, queue, arranged, out, state)
        if status != DONE:
            return status
