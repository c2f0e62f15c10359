"""Making a join ready to run: one call for what would take a handful of array assignments.

A change of one row spends a microsecond in the join itself, so what is done around it counts.
"""

from __future__ import annotations

from numba import njit

from tidelog.kernel.join import (
    DOWN,
    EXCLUDES_FLAGGED,
    LEVELS,
    LIMIT,
    RUN_COUNT,
    SETTLE_LEVEL,
    USES_LEVEL,
)
from tidelog.kernel.table import SIZE


@njit(cache=True)
def read_runs(
    runs, high, atoms, atom, table, limit, uses_level, excludes_flagged, ignores_marks
):  # fmt: skip
    """Have an atom read the runs of a table."""
    for r in range(table.shape[0]):
        for c in range(table.shape[1]):
            runs[atom, r, c] = table[r, c]
        if ignores_marks:
            runs[atom, r, LEVELS] = 0
        high[atom, 0, r] = table[r, SIZE]
    atoms[atom, RUN_COUNT] = table.shape[0]
    atoms[atom, LIMIT] = limit
    atoms[atom, USES_LEVEL] = uses_level
    atoms[atom, EXCLUDES_FLAGGED] = excludes_flagged


@njit(cache=True)
def begin(state, slots, initial, cursor, rest, flagged, settle_level):
    """Put a join at its beginning."""
    state[:] = 0
    state[DOWN] = 1
    state[SETTLE_LEVEL] = settle_level
    slots[:] = initial
    cursor[:] = 0
    rest[0] = 0
    flagged[0] = -1
