"""The level repair of a linear recursion: the kernel walks through all levels above 0 by itself.

Most recursions are of this kind: one relation, of which each rule has at most one atom. They can
have many small levels, and a kernel call for each would cost more than its rows. The kernel returns
a status when it needs more room, or a wider column, and is called again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.join.joins import Reader, RuleJoin
from tidelog.join.program import JoinProgram
from tidelog.join.rules import RuleJoins
from tidelog.kernel import walk as kernel
from tidelog.kernel.join_layout import DESCRIPTION_SIZE, DRIVER_WORDS
from tidelog.maintain.settle_queue import SettleQueue
from tidelog.store.catalog import Catalog
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
            program = join.opened(reader(driver))
            if program is not None:
                self._programs.append(_Program(rule_joins, driver, join, program))
                rows.append(program.description(join.walked_atom))
        self._described = np.array(rows, np.int64).reshape(-1, DESCRIPTION_SIZE)
        words = max((int(row[DRIVER_WORDS]) for row in rows), default=1)
        self._queue = np.empty((relation.words, _FIRST_ROOM), np.int64)
        self._beside = np.empty((2, _FIRST_ROOM), np.int64)  # levels and counts
        self._arranged = np.empty((words, _FIRST_ROOM), np.int64)
        self._out = np.empty((relation.words + 1, _CHUNK), np.int64)
        self._state = np.zeros(kernel.STATE_SIZE, np.int64)
        self._state[kernel.PROGRAM] = len(self._described)

    @staticmethod
    def is_possible(joins: Sequence[tuple[RuleJoins, int]], mode: int) -> bool:
        """Return whether the kernel can run all these joins by itself."""
        return all(rule_joins.small(driver, mode).can_be_walked for rule_joins, driver in joins)

    @property
    def levels(self) -> int:
        """How many levels had rows."""
        return int(self._state[kernel.LEVELS])

    def lose(self, rows: Words, levels: Levels, pace: Callable[[], None]) -> Words:
        """Remove rows, sorted by level, and all that depends on them; return the removed rows."""
        relation, state = self._relation, self._state
        primary = relation.primary
        undo = relation.counts_undo()
        status = -1
        while status != kernel.DONE:
            state[kernel.NOTED] = undo.used
            columns = undo.room_for(_CHUNK)
            try:
                status = kernel.lose(
                    self._described, primary.descriptors(), relation.words,
                    primary.layout.by_column, rows, levels, self._queue, self._arranged, self._out,
                    columns, state,
                )  # fmt: skip
            finally:
                undo.used = int(state[kernel.NOTED])
            self._provide(status, pace)
        return np.ascontiguousarray(self._queue[:, : state[kernel.QUEUED]])

    def settle(
        self,
        waiting: SettleQueue,
        pace: Callable[[], None],
        check: Callable[[RuleJoins, int, Words], None],
    ) -> tuple[Words, Levels, Levels]:
        """Settle the rows that wait above level 0, and those that they lead to.

        Returns rows, levels and counts. `check` is called for joins in which a computation failed,
        with the rows they started from.
        """
        relation, state = self._relation, self._state
        rows, levels = waiting.by_level()
        primary = relation.primary
        tail = -1 if primary.tail is None else len(primary.runs)
        undo = relation.counts_undo()
        status = -1
        while status != kernel.DONE:
            state[kernel.NOTED], state[kernel.USED] = undo.used, waiting.used
            columns = undo.room_for(_CHUNK)
            try:
                status = kernel.settle(
                    self._described, primary.descriptors(), tail, relation.words,
                    primary.layout.by_column, rows, levels, self._queue, self._beside[0],
                    self._beside[1], self._arranged, self._out, waiting.keys, waiting.waiting,
                    columns, state,
                )  # fmt: skip
            finally:
                undo.used, waiting.used = int(state[kernel.NOTED]), int(state[kernel.USED])
            self._catalog.meter.settles(int(state[kernel.AT_LEVEL]))
            if status == kernel.LARGER_HASH:
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
        """Give the kernel what it needs, and let the caller end the update."""
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
                # The kernel asks for this only before a join begins, which reads from here.
                self._arranged = np.empty((len(self._arranged), 2 * bucket), np.int64)


def _larger(rows: Words) -> Words:
    larger = np.empty((rows.shape[0], 2 * rows.shape[1]), np.int64)
    larger[:, : rows.shape[1]] = rows
    return larger
