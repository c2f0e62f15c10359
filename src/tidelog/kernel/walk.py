"""A linear recursion, repaired level by level in one call (maintain/walk.py).

Where no rule has two atoms of the stratum, an instantiation has one row above level 0 at most, and
fires one level above it. So each level's rows lead to those of the next, and there is nothing to
decide in between: the kernel joins the rules from a level's rows, goes through the heads, and
queues those that the next level starts from.

A rule's join comes as a row of `programs`: which of its atoms is the driver, how many words a row
of the driver has, and address and shape of each array of the join (kernel/program.py).

The kernel returns when it is done, and else with what it is in want of; called again, it goes on
from the same place.
"""

from __future__ import annotations

import numpy as np
from numba import carray, njit  # type: ignore[attr-defined]

from tidelog.kernel import join as k
from tidelog.kernel.memory import pointer64
from tidelog.kernel.repair import COUNT, LEVEL, find, place
from tidelog.kernel.table import (
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

# Columns of `programs`.
DRIVER, DRIVER_WORDS, FIELDS, ARRAYS = range(4)
ARRAY_COLUMNS = 4  # address and shape
ARRAY_COUNT = 18

# What the kernel returns.
DONE, AGAIN, ROOM, WIDER_VALUE, WIDER_COUNTS, LARGER_TABLE, FAILED, MORE = range(8)

# Fields of the walk's state. The queue has the rows of all levels; those of the level at hand are
# from START to END, those of the next one from END to QUEUED.
(
    AT_LEVEL, START, END, QUEUED, PENDING, PROGRAM, PHASE, AT, HELD, LOGGED, USED, FOUND, LEVELS,
) = range(13)  # fmt: skip
STATE_SIZE = 13

_IDLE, _JOINING, _ENDING = range(3)  # phases of a program
_FUEL = 2_000_000
_A_WHILE = 200_000  # instantiations: then the caller looks at the clock
_DEAD_NOW = 1 << 29
_NEVER = np.int64(_DEAD_NOW)
_MOST_NARROW = (1 << 31) - 1
_NO_KEYS = np.zeros((2, 1), np.int64)  # where nothing waits


@njit(cache=True, inline="always")
def _array1(program, number):
    at = ARRAYS + ARRAY_COLUMNS * number
    return carray(pointer64(program[at]), (program[at + 1],))


@njit(cache=True, inline="always")
def _array2(program, number):
    at = ARRAYS + ARRAY_COLUMNS * number
    return carray(pointer64(program[at]), (program[at + 1], program[at + 2]))


@njit(cache=True, inline="always")
def _array3(program, number):
    at = ARRAYS + ARRAY_COLUMNS * number
    return carray(pointer64(program[at]), (program[at + 1], program[at + 2], program[at + 3]))


@njit(cache=True)
def _begin(program, by_column, queue, start, end, arranged):
    """Let a join start from the rows of a level, brought into the driver's layout."""
    atom, words, n = program[DRIVER], program[DRIVER_WORDS], end - start
    columns = by_column.shape[0]
    fields = carray(pointer64(program[FIELDS]), (columns, 3))
    for i in range(n):
        for w in range(words):
            arranged[w, i] = 0
        for c in range(columns):
            value = (queue[by_column[c, 0], start + i] >> by_column[c, 1]) & by_column[c, 2]
            arranged[fields[c, 0], i] += value << fields[c, 1]
    atoms, runs = _array2(program, 5), _array3(program, 6)
    atoms[atom, k.RUN_COUNT] = 1
    atoms[atom, k.LIMIT] = 0
    atoms[atom, k.USES_LEVEL] = 0
    atoms[atom, k.EXCLUDES_FLAGGED] = 0
    runs[atom, 0, SIZE] = n
    runs[atom, 0, MARKS] = 0
    runs[atom, 0, DIRECTORY] = 0
    runs[atom, 0, SHIFT] = 0
    for w in range(words):
        runs[atom, 0, WORDS + w] = arranged[w:].ctypes.data
    low, high = _array3(program, 11), _array3(program, 12)
    low[atom, 0, 0] = 0
    high[atom, 0, 0] = n
    slots, cursor, state = _array1(program, 10), _array3(program, 13), _array1(program, 16)
    slots[:] = _array1(program, 17)
    cursor[:] = 0
    _array1(program, 14)[0] = 0
    _array1(program, 15)[0] = -1
    state[:] = 0
    state[k.DOWN] = 1


@njit(cache=True)
def _join(program, out):
    """Run the join on; return what it returned, how much it filled, and whether it failed."""
    state = _array1(program, 16)
    state[k.FUEL] = _FUEL
    status = k.join(
        _array2(program, 0), _array2(program, 1), _array2(program, 2), _array2(program, 3),
        _array3(program, 4), _array2(program, 5), _array3(program, 6), _array2(program, 7),
        _array2(program, 8), _array2(program, 9), _array1(program, 10), _array3(program, 11),
        _array3(program, 12), _array3(program, 13), _array1(program, 14), _array1(program, 15),
        out, state, k.LOSE,
    )  # fmt: skip
    filled = state[k.FILLED]
    if status != k.OUT_OF_FUEL:
        state[k.FILLED] = 0
    return status, filled, state[k.FAILURE] != 0


@njit(cache=True)
def _next_chunk(programs, by_column, queue, arranged, out, state):
    """Run the program at hand until some of its output is held, or it has ended."""
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


@njit(cache=True)
def _go_on(programs, by_column, queue, arranged, out, state):
    """Go on to the next program if one has ended, else run it on."""
    if state[PHASE] != _ENDING:
        return _next_chunk(programs, by_column, queue, arranged, out, state)
    state[PHASE] = _IDLE
    state[PROGRAM] += 1
    return AGAIN if state[FOUND] > _A_WHILE else DONE


@njit(cache=True)
def _queue(queue, at, words, rows, i):
    for w in range(words):
        queue[w, at] = rows[w, i]


@njit(cache=True)
def _next_level(given, given_levels, words, queue, keys, waiting, is_settling, state):
    """Go on to the next level that has rows: queued ones, and given ones, which are queued now.

    A given row that waits to be settled may have got a lower level meanwhile: it was queued then.
    """
    if state[QUEUED] > state[END]:
        level = state[AT_LEVEL] + 1
    elif state[PENDING] < given_levels.shape[0]:
        level = given_levels[state[PENDING]]
    else:
        return DONE
    state[AT_LEVEL] = level - 1  # until all given rows of the level are queued
    while state[PENDING] < given_levels.shape[0] and given_levels[state[PENDING]] == level:
        if state[QUEUED] == queue.shape[1]:
            return ROOM
        i = state[PENDING]
        if not is_settling or waiting[LEVEL, place(keys, waiting, words, given, i)] == level:
            _queue(queue, state[QUEUED], words, given, i)
            state[QUEUED] += 1
        state[PENDING] += 1
    state[AT_LEVEL] = level
    state[START], state[END] = state[END], state[QUEUED]
    return MORE


@njit(cache=True)
def _lose_rows(table, words, out, queue, log, state):
    """Take the lost instantiations from the counts of their heads; queue those that reach 0."""
    fingers = np.zeros(MOST_RUNS, np.int64)
    level = state[AT_LEVEL] + 1
    for i in range(state[AT], state[HELD]):
        if state[QUEUED] == queue.shape[1] or state[LOGGED] == log.shape[1]:
            state[AT] = i
            return ROOM
        r, at, mark = find(table, words, out, i, fingers)
        if r < 0 or mark != level:
            continue  # only what fired at the row's own level was counted
        count = count_of(table, r, at)
        assert count > 0
        log[0, state[LOGGED]] = r
        log[1, state[LOGGED]] = at
        log[2, state[LOGGED]] = count
        state[LOGGED] += 1
        set_count(table, r, at, count - 1)
        if count == 1:
            _queue(queue, state[QUEUED], words, out, i)
            state[QUEUED] += 1
    state[AT] = state[HELD]
    return DONE


@njit(cache=True)
def lose(programs, table, words, by_column, given, given_levels, queue, arranged, out, log, state):
    """Take out rows and all that depends on them: `given`, by level, and what the queue gets."""
    while True:
        if state[PROGRAM] == programs.shape[0]:
            status = _next_level(
                given, given_levels, words, queue, _NO_KEYS, _NO_KEYS, False, state
            )
            if status != MORE:
                return status
            state[PROGRAM] = 0
            state[LEVELS] += 1
            continue
        if state[AT] < state[HELD]:
            status = _lose_rows(table, words, out, queue, log, state)
            if status != DONE:
                return status
        status = _go_on(programs, by_column, queue, arranged, out, state)
        if status != DONE:
            return status


@njit(cache=True)
def _offer_rows(table, tail, words, out, queue, keys, waiting, log, state):
    """Let instantiations reach their heads: a smaller level wins, an equal one adds to the count.

    A head that gets a level is queued, and waits in the hash table with its count.
    """
    fingers = np.zeros(MOST_RUNS, np.int64)
    fires = state[AT_LEVEL] + 1
    room = waiting.shape[1] >> 1
    for i in range(state[AT], state[HELD]):
        state[AT] = i
        if state[QUEUED] == queue.shape[1] or state[LOGGED] == log.shape[1]:
            return ROOM
        if state[USED] >= room:
            return LARGER_TABLE
        r, found, mark = find(table, words, out, i, fingers)
        held = mark if mark < _DEAD_NOW else _NEVER
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
                count = count_of(table, r, found)
                if count >= _MOST_NARROW and not table[r, WIDE]:
                    return WIDER_COUNTS
                if r != tail:
                    log[0, state[LOGGED]] = r
                    log[1, state[LOGGED]] = found
                    log[2, state[LOGGED]] = count
                    state[LOGGED] += 1
                set_count(table, r, found, count + 1)
    state[AT] = state[HELD]
    return DONE


@njit(cache=True)
def settle(
    programs, table, tail, words, by_column, given, given_levels, queue, levels, counts, arranged,
    out, keys, waiting, log, state,
):  # fmt: skip
    """Give rows their new levels: `given`, that wait already, by level, and what they lead to.

    Writes level and count beside each row of the queue. A given row may have got a lower level on
    the way: it was queued then.
    """
    while True:
        if state[PROGRAM] == programs.shape[0]:
            status = _next_level(given, given_levels, words, queue, keys, waiting, True, state)
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
            status = _offer_rows(table, tail, words, out, queue, keys, waiting, log, state)
            if status != DONE:
                return status
        status = _go_on(programs, by_column, queue, arranged, out, state)
        if status != DONE:
            return status
