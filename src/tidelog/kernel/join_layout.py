"""The arrays of a compiled join, and the meaning of their columns.

The compiler (join/compiler.py) writes them, the interpreter (kernel/join.py) reads them, and the
walk (kernel/walk.py) gets them as addresses. Everything that these three agree on is here.
"""

from __future__ import annotations

# The arrays of a join, in the order in which the interpreter takes them.
ARRAYS = (
    "steps", "parts", "columns", "segments", "fields", "atoms", "runs", "code", "emits", "pieces",
    "slots", "low", "high", "cursor", "rest", "flagged",
)  # fmt: skip
(
    STEPS, PARTS, COLUMNS, SEGMENTS, FIELDS, ATOMS, RUNS, CODE, EMITS, PIECES,
    SLOTS, LOW, HIGH, CURSOR, REST, FLAGGED,
) = range(16)  # fmt: skip
# After them, for a walk: the state, and the initial values of slots.
STATE, INITIAL = 16, 17
ARRAY_COUNT = 18

# A join as one row of numbers, for a walk: the atom that drives it, the number of words of that
# atom's rows, the address of their fields, the address of the interpreter, then the address and the
# shape of each array.
DRIVER, DRIVER_WORDS, DRIVER_FIELDS, INTERPRETER, FIRST_ARRAY = range(5)
ARRAY_COLUMNS = 4
DESCRIPTION_SIZE = FIRST_ARRAY + ARRAY_COUNT * ARRAY_COLUMNS

# The operations of steps.
LEAP, SCAN, SEEK, CALC, TEST, ABSENT, RANGE, EMIT, SCAN_EMIT, BOUND, WINDOW = range(1, 12)

# `steps`: the operation, then what it needs.
STEP_SIZE = 8
OP = 0
# LEAP: of `parts`; those of negated atoms are from the stop on.
LEAP_SLOT, LEAP_START, LEAP_STOP, LEAP_ABSENT_STOP = 1, 2, 3, 4
SCAN_ATOM, SCAN_DEPTH, SCAN_START, SCAN_STOP, SCAN_RUN = 1, 2, 3, 4, 5  # of `columns`; a slot
SEEK_ATOM, SEEK_DEPTH, SEEK_DEPTH_TO, SEEK_START, SEEK_STOP = 1, 2, 3, 4, 5  # of `columns`
ABSENT_ATOM, ABSENT_START, ABSENT_STOP = 1, 2, 3  # of `segments`
# BOUND: the slot has an ordinal; the code of the column is `bias` less. Kinds are sums of flags.
BOUND_ATOM, BOUND_DEPTH, BOUND_SLOT, BOUND_OFFSET, BOUND_BIAS, BOUND_KIND = 1, 2, 3, 4, 5, 6
BELOW, INCLUSIVE = 1, 2  # below the value, not above it; the value itself is included
# WINDOW: the step of the LEAP, the slot of an ordinal, what makes it a code of the LEAP's variable.
WINDOW_LEAP, WINDOW_SLOT, WINDOW_OFFSET, WINDOW_BIAS, WINDOW_KIND, WINDOW_MASK = 1, 2, 3, 4, 5, 6
WINDOW_IS_FIRST = 7  # of the windows of this LEAP
CODE_START, CODE_STOP, CODE_RESULT = 1, 2, 3  # of `code`; the slot that TEST reads
RANGE_INTO, RANGE_START, RANGE_STOP, RANGE_INCREMENT, RANGE_NEXT = 1, 2, 3, 4, 5  # slots

# `parts`: the atoms of a LEAP, and the depth of each. For a negated atom, the `segments` of its
# other columns, the part of the positive atom that skips what it has, and whether it is a subset of
# that atom, which is known when the join runs.
PART_ATOM, PART_DEPTH, PART_KEY_START, PART_KEY_STOP, PART_WHOLE, PART_IS_SUBSET = range(6)
PART_SIZE = 6

# `columns`: where the bits of a column are in a row, and the slot of its value.
COLUMN_WORD, COLUMN_SHIFT, COLUMN_MASK, COLUMN_SLOT = range(4)

# `segments`: columns of one word that an ABSENT narrows by, from one depth to another.
SEGMENT_DEPTH, SEGMENT_DEPTH_TO, SEGMENT_START, SEGMENT_STOP = range(4)

# `fields`, by atom and depth: as store/layout.py has them.
FIELD_WORD, FIELD_SHIFT, FIELD_MASK, FIELD_PREFIX, FIELD_IS_LAST = range(5)

# `emits`: a slot, and where its value goes in the head.
EMIT_SLOT, EMIT_WORD, EMIT_SHIFT, EMIT_MASK = range(4)

# `pieces`: bits of a scanned row that SCAN_EMIT copies, and where they go in the head.
PIECE_WORD, PIECE_SHIFT, PIECE_MASK, PIECE_INTO = range(4)

# `atoms`: which rows an atom reads (kernel/marks.py).
RUN_COUNT, LIMIT, USES_LEVEL, EXCLUDES_FLAGGED = range(4)

# `state`. AT_STEP: the current step; DOWN: whether it is entered from above.
AT_STEP, DOWN, FILLED, FAILURE, WIDEN_COLUMN, WIDEN_VALUE, FUEL, SETTLE_LEVEL = range(8)
STATE_SIZE = 8

# What the interpreter returns.
DONE, FULL, WIDEN, OUT_OF_FUEL = range(4)

# The mode of a join: what an instantiation reports in the extra row of the output.
PLAIN = 0  # nothing
LOSE = 1  # the iteration it fired in: 1 + the largest level of its body
SETTLE = 2  # the iteration it fires in now that the flagged rows have level `settle_level`
LOOK_BACK = 3  # as LOSE; no row is flagged
COUNT = 5  # nothing is written: FILLED becomes the number of instantiations
RAW = 4  # the two largest levels, for rules that are joined in stages: of rows not flagged, flagged
RANGES = 6  # no rows are written, but ranges of the atom that is scanned last (kernel/spreading.py)
