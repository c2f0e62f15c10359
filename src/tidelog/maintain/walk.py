"""The level repair of a linear recursion: the kernel walks through all levels above 0 by itself.

Most recursions are of this kind: one relation, of which each rule has one atom at most. Their
levels can be many and small, and a call of the kernel for each would cost more than its rows. What
the walk is in want of on its way (more room, a wider column) it asks for, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import walk as kernel
from tidelog.kernel.program import JoinProgram
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.joins import Reader, RuleJoin
from tidelog.maintain.rules import RuleJoins
from tidelog.maintain.waiting import Waiting
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words

Levels = NDArray[np.int64]

_FIRST_ROOM = 1024
_CHUNK = 4096


@dataclass(frozen=True)
class _Program:
    """One join that is walked."""

    joins: RuleJoins
    driver: int
    join: RuleJoin
    program: JoinProgram


class Walk:
    """One phase of one update: the levels above 0."""

    def __init__(
        self,
        catalog: Catalog,
        relation: StoredRelation,
        joins: Sequence[tuple[RuleJoins, int]],
        mode: int,
        reader: Callable[[int], Reader],
    ) -> None:
        """Prepare to walk with rules from their drivers; `reader` tells what a join reads."""
        self._catalog = catalog
        self._relation = relation
        self._programs: list[_Program] = []
        rows = []
        for rule_joins, driver in joins:
            join = rule_joins.small(driver, mode)
            opened = join.opened(reader(driver))
            if opened is not None:
                program, atom = opened
                self._programs.append(_Program(rule_joins, driver, join, program))
                rows.append(program.description(atom))
        width = kernel.ARRAYS + kernel.ARRAY_COUNT * kernel.ARRAY_COLUMNS
        self._table = np.array(rows, np.int64).reshape(-1, width)
        words = max((int(row[kernel.DRIVER_WORDS]) for row in rows), default=1)
        self._queue = np.empty((relation.words, _FIRST_ROOM), np.int64)
        self._beside = np.empty((2, _FIRST_ROOM), np.int64)  # levels and counts
        self._arranged = np.empty((words, _FIRST_ROOM), np.int64)
        self._out = np.empty((relation.words + 1, _CHUNK), np.int64)
        self._state = np.zeros(kernel.STATE_SIZE, np.int64)
        self._state[kernel.PROGRAM] = len(self._table)

    @staticmethod
    def is_possible(joins: Sequence[tuple[RuleJoins, int]], mode: int) -> bool:
        """Return whether the kernel can run all these joins by itself."""
        return all(rule_joins.small(driver, mode).can_be_walked for rule_joins, driver in joins)

    @property
    def levels(self) -> int:
        """How many levels had rows."""
        return int(self._state[kernel.LEVELS])

    def lose(self, rows: Words, levels: Levels, pace: Callable[[], None]) -> Words:
        """Take out rows, sorted by level, and all that depends on them; return all of them."""
        relation, state = self._relation, self._state
        relation.touched = True
        primary = relation.primary
        log = primary.counts_log
        status = -1
        while status != kernel.DONE:
            state[kernel.LOGGED] = log.used
            columns = log.room_for(_CHUNK)
            try:
                status = kernel.lose(
                    self._table, primary.table(), relation.words, primary.layout.by_column, rows,
                    levels, self._queue, self._arranged, self._out, columns, state,
                )  # fmt: skip
            finally:
                log.used = int(state[kernel.LOGGED])
            self._provide(status, pace)
        return np.ascontiguousarray(self._queue[:, : state[kernel.QUEUED]])

    def settle(
        self,
        waiting: Waiting,
        pace: Callable[[], None],
        check: Callable[[RuleJoins, int, Words], None],
    ) -> tuple[Words, Levels, Levels]:
        """Settle what waits above level 0, and what it leads to; return rows, levels and counts.

        `check` is told of joins some computation of which failed, and the rows they started from.
        """
        relation, state = self._relation, self._state
        relation.touched = True
        rows, levels = waiting.by_level()
        primary = relation.primary
        tail = -1 if primary.tail is None else len(primary.runs)
        log = primary.counts_log
        status = -1
        while status != kernel.DONE:
            state[kernel.LOGGED], state[kernel.USED] = log.used, waiting.used
            columns = log.room_for(_CHUNK)
            try:
                status = kernel.settle(
                    self._table, primary.table(), tail, relation.words, primary.layout.by_column,
                    rows, levels, self._queue, self._beside[0], self._beside[1], self._arranged,
                    self._out, waiting.keys, waiting.waiting, columns, state,
                )  # fmt: skip
            finally:
                log.used, waiting.used = int(state[kernel.LOGGED]), int(state[kernel.USED])
            self._catalog.meter.settles(int(state[kernel.AT_LEVEL]))
            if status == kernel.LARGER_TABLE:
                waiting.enlarge()
            elif status == kernel.WIDER_COUNTS:
                primary.widen_counts()
            elif status == kernel.FAILED:
                start, end = state[kernel.START], state[kernel.END]
                walked = self._programs[state[kernel.PROGRAM]]
                rows_here = np.ascontiguousarray(self._queue[:, start:end])
                check(walked.joins, walked.driver, rows_here)
            self._provide(status, pace)
        n = state[kernel.QUEUED]
        return self._queue[:, :n], self._beside[0, :n], self._beside[1, :n]

    def _provide(self, status: int, pace: Callable[[], None]) -> None:
        """Give the kernel what it asks for, and others a chance to end the update."""
        state = self._state
        self._catalog.meter.found(int(state[kernel.FOUND]))
        state[kernel.FOUND] = 0
        pace()
        if status == kernel.WIDER_VALUE:
            walked = self._programs[state[kernel.PROGRAM]]
            raise walked.join.overflow(walked.program.overflowed())
        if status == kernel.ROOM:
            if state[kernel.QUEUED] == self._queue.shape[1]:
                self._queue, self._beside = _larger(self._queue), _larger(self._beside)
            bucket = int(state[kernel.END] - state[kernel.START])
            if bucket > self._arranged.shape[1]:
                # Only before a join begins: it reads from here.
                self._arranged = np.empty((len(self._arranged), 2 * bucket), np.int64)


def _larger(rows: Words) -> Words:
    larger = np.empty((rows.shape[0], 2 * rows.shape[1]), np.int64)
    larger[:, : rows.shape[1]] = rows
    return larger
