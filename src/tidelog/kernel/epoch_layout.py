"""The arrays of a short epoch, and the meaning of their columns.

Python writes them (store/open_rows.py, maintain/epoch_program.py), and kernel/epoch.py runs them.
Everything that both agree on is here. All numbers have 64 bits; "address" is that of an array.
"""

from __future__ import annotations

MOST_ROWS = 256  # of a change of one relation, and of what one rule derives
OPEN_ROWS = 1024  # room for rows that short epochs have added to an order
LOG_ROWS = 512  # room for notes of what they have overwritten in closed runs

# What the kernels return.
(
    DONE,
    ROOM,  # an open run, or a log, is full: the order AT_INDEX
    NO_MARKS,  # a row of the run AT_RUN of the order AT_INDEX dies, and there are no marks
    TOO_MANY,  # more rows than the buffers take, or more steps than a short epoch should need
    REFUSED,  # something changes that only the strategies can follow
    UNUSUAL,  # a value does not fit, a computation fails, an array is full: they will say which
) = range(6)

# `head`: sizes and addresses of the tables below, and scratch.
(
    RELATION_COUNT, RELATIONS, INDEX_COUNT, INDEXES, STEP_COUNT, STEPS, DRIVE_COUNT, DRIVES,
    READ_COUNT, READS, JOIN_COUNT, JOINS, SUM_COUNT, SUMS, LOOKUP_COUNT, LOOKUPS, TOUCHED_COUNT,
    TOUCHED, IGNORED_COUNT, IGNORED, AT_INDEX, AT_RUN, GIVEN_INSERTED, GIVEN_DELETED, WIDEST, OUT,
    ARRANGED, SELECTED, TALLY, WEIGHTS, FINGERS, ROW, LOW, HIGH, COLUMN_COUNT, COLUMNS,
    WHICH, LIMBS, BEFORE, AFTER, HAD, HAS, OLD_ROWS, NEW_ROWS, HEAD_SIZE,
) = range(45)  # fmt: skip

# Relations. Orders are numbered from FIRST to LAST, the primary one first. ROWS is the address of
# the inserted rows, and behind them of the deleted ones: room for MOST_ROWS of each.
(
    FIRST, LAST, R_WORDS, R_COLUMNS, R_FIELDS, ROWS, INSERTED, DELETED, IS_STORED, REFUSES,
    IS_TOUCHED, RELATION_SIZE,
) = range(12)  # fmt: skip

# Orders. RUNS is the address of descriptors (kernel/descriptors.py): of CLOSED runs, the open run,
# and the tail; CLOSED is -1 for an order that short epochs cannot use now. UNDO and COUNTS_UNDO
# have columns (run, position, old value), LOG has (run, position, whether the row died).
(
    RUNS, RUN_WIDTH, CLOSED, X_WORDS, X_COLUMNS, X_FIELDS, IS_COUNTED, UNDO, NOTED, COUNTS_UNDO,
    COUNTS_NOTED, LOG, LOGGED, IS_AHEAD, INDEX_SIZE,
) = range(15)  # fmt: skip

# Steps, one for each layer that the kernel runs. START and STOP are those of its drives, sums or
# lookups. IS_MAX is for semi-joins. After an epoch HAS_RUN says whether something that the layer
# reads has changed, and FOUND how many rows its joins have found.
KIND, RESULT, START, STOP, GIVEN, SOURCE, IS_MAX, HAS_RUN, FOUND, STEP_SIZE = range(10)
COUNT_STEP, SUM_STEP, EXTREME_STEP, TREE_STEP, SEMI_JOIN_STEP = range(5)

# What drives a rule: a change of SOURCE, with the rest of the body or copied to the head as it is.
# COPIES is the address of (word, shift, mask, word, shift) of each column, here and in the head.
# For the moved extremes of a semi-join it is that of their fields. D_JOIN is NO_JOIN for a copy,
# and LATER if an order of a large relation would have to be built.
D_SOURCE, SIGN, D_JOIN, READS_START, READS_STOP, COPIES, COPY_COUNT, DRIVE_SIZE = range(8)
NO_JOIN, LATER = -1, -2

# What an atom of a join reads: its number in the plan, an order, and whether the new version.
READ_ATOM, READ_INDEX, READS_NEW, READ_SIZE = range(4)

# The sums of a column (store/accumulators.py), and the results that come from them
# (store/sibling_sums.py): addresses, each with its size.
(
    HEADS, HEAD_COUNT, HEAD_WIDTH, TABLE, TABLE_SIZE, BLOCKS, BLOCKS_SIZE, STATE, SUMS_UNDO,
    SUMS_UNDO_COUNT, OPERATION, KEY, KEY_COUNT, TARGET, OPERATIONS, RESULT_PLACES, RESULT_COUNT,
    KEPT, SUM_SIZE,
) = range(19)  # fmt: skip

# How the extreme of a group is looked up: in the order IN_ORDER of the source, between the rows
# LOWEST and HIGHEST with the columns of the group in them. TO_ORDER and TO_RESULT are addresses as
# COPIES is, from the first order of the source. V_WORD, V_SHIFT, V_MASK and V_BIAS are the field of
# the value in that order; its field in the result is the last one.
(
    IN_ORDER, LOWEST, HIGHEST, TO_ORDER, TO_RESULT, GROUP_COUNT, V_WORD, V_SHIFT, V_MASK, V_BIAS,
    IS_LARGEST, RESULT_LOWEST, RESULT_HIGHEST, LOOKUP_SIZE,
) = range(14)  # fmt: skip
