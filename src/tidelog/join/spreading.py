"""The result of a join as columns, in no particular order.

    ranges of the join      x = 3: rows 5 to 7 of s      x = 4: row 7 of s
    column x                3 3 3 4
    column y                rows 5 to 7 of s, row 7 of s

The last step of most joins scans adjacent rows of one atom. They are not packed into rows of the
head, to be sorted and unpacked again, but copied: a column of the result costs little more than a
copy of it. So this is the fastest way to read a result whose order does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tidelog.join.joins import AtomReading, Reader, RuleJoin
from tidelog.join.program import JoinProgram
from tidelog.kernel import spreading as kernel
from tidelog.plan.body import AtomUse
from tidelog.plan.steps import Scan
from tidelog.store.relation import ordinals_by
from tidelog.store.run import Words

Columns = NDArray[np.int64]

_RANGES = 1 << 16


def spread_columns(join: RuleJoin, reader: Reader, rows_at_once: int) -> Iterator[Columns]:
    """Yield the instantiations of a join in RANGES mode as columns of ordinals.

    The join has one stage. The reader has to give one run without marks for each atom.
    """
    (stage,) = join.stages
    words: dict[int, Words] = {}

    def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
        found = reader(place, atom, order)
        (run,) = found.runs
        assert run.marks is None
        words[stage.places.index(place)] = run.words
        return found

    program = join.opened(read)
    if program is None:
        return
    places, scanned = _places(join, program, words)
    are_copied = not places[:, kernel.IS_KNOWN].any()
    ranges = np.empty((program.out_height, _RANGES), np.int64)
    position = np.zeros(kernel.POSITION_SIZE, np.int64)
    into = np.empty((len(places), 0), np.int64)
    for n in program.run(ranges):
        if are_copied:  # adjacent rows of one atom, as they are
            for low, high in ranges[:, :n].T.tolist():
                for start in range(low, high, rows_at_once):
                    yield scanned[:, start : min(high, start + rows_at_once)]
            continue
        position[kernel.NEXT] = position[kernel.BEGUN] = 0
        while position[kernel.NEXT] < n:
            if position[kernel.FILLED] == into.shape[1]:
                if into.shape[1]:
                    yield into
                into = np.empty((len(places), rows_at_once), np.int64)
                position[kernel.FILLED] = 0
            kernel.spread(ranges, n, scanned, places, into, position)
    if position[kernel.FILLED]:
        yield into[:, : position[kernel.FILLED]]


def _places(
    join: RuleJoin, program: JoinProgram, words: dict[int, Words]
) -> tuple[NDArray[np.int64], Columns]:
    """Return where each column of the head comes from, and the columns that are scanned."""
    last = program.plan.steps[-1]
    places: list[tuple[int, int, int]] = []
    fields: list[NDArray[np.int64]] = []
    for slot in join.rule.head.args:
        assert slot is not None
        if slot in program.emitted:
            places.append((1, program.emitted.index(slot), join.bias(slot)))
            continue
        assert isinstance(last, Scan)
        column = program.plan.atoms[last.atom].args.index(slot)
        places.append((0, len(fields), 0))
        fields.append(program.layout(last.atom).biased[column])
    scanned = np.empty((0, 0), np.int64)
    if fields:
        assert isinstance(last, Scan)
        scanned = ordinals_by(words[last.atom], np.array(fields, np.int64))
    return np.array(places, np.int64).reshape(-1, 3), scanned
