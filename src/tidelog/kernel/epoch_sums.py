"""The step of a short epoch that adds changed rows to sums of groups (kernel/epoch.py)."""

from __future__ import annotations

import numpy as np

from tidelog.kernel import epoch_layout as e
from tidelog.kernel import groups as g
from tidelog.kernel.accumulate import LARGEST_BLOCK, OPERATION_SIZE, ROW, add_up, finish
from tidelog.kernel.compiling import FALSE, TRUE, ZERO, bare_helper
from tidelog.kernel.described import view1, view2, view_flags, view_i32, view_u32
from tidelog.kernel.epoch_rows import MOST, changes_at, insert, write_single
from tidelog.kernel.exact import SIZE as LIMB_COUNT
from tidelog.kernel.groups import note_groups
from tidelog.kernel.pointers import address64, load64
from tidelog.kernel.siblings import changed_rows, write_results


@bare_helper
def _unpack_changes(relations, source, columns):
    """Write the changed rows of a relation as columns of ordinals, the inserted ones first."""
    added, removed = relations[source, e.INSERTED], relations[source, e.DELETED]
    fields = view2(relations[source, e.R_FIELDS], relations[source, e.R_COLUMNS], np.int64(4))
    for deleted in range(2):
        rows = view2(
            changes_at(relations, source, np.int64(deleted)), relations[source, e.R_WORDS], MOST
        )
        first = added if deleted else np.int64(0)
        for i in range(removed if deleted else added):
            for c in range(fields.shape[0]):
                code = (rows[fields[c, 0], i] >> fields[c, 1]) & fields[c, 2]
                columns[c, first + i] = code + fields[c, 3]


@bare_helper
def _add_up(head, sums, s, columns, added, n):
    """Add rows to the sums of their groups; return the number of groups, or -1."""
    heads = view2(sums[s, e.HEADS], sums[s, e.HEAD_COUNT], sums[s, e.HEAD_WIDTH])
    table = view_i32(sums[s, e.TABLE], sums[s, e.TABLE_SIZE])
    blocks = view_u32(sums[s, e.BLOCKS], sums[s, e.BLOCKS_SIZE])
    state = view1(sums[s, e.STATE], np.int64(g.STATE))
    undo = view2(sums[s, e.SUMS_UNDO], sums[s, e.SUMS_UNDO_COUNT], np.int64(g.UNDO_SIZE))
    key = view1(sums[s, e.KEY], sums[s, e.KEY_COUNT])
    which = view1(head[e.WHICH], np.int64(2 * e.MOST_ROWS))
    scratch = head[e.WHICH]  # of arrays without elements
    no_places = view_i32(scratch, np.int64(0))
    if (
        note_groups(heads, table, state, columns, key, ZERO, n, which, undo, no_places, ZERO) < n
        or state[g.WORDS_USED] + state[g.TOUCHED] * LARGEST_BLOCK > blocks.shape[0]
    ):
        return np.int64(-1)
    state[g.DELETED] = state[g.INSERTED] = state[g.BEYOND] = 0
    target = max(sums[s, e.TARGET], 0)
    values = view1(address64(columns) + 8 * target * columns.shape[1], columns.shape[1])
    add_up(
        heads, blocks, state, undo, view1(sums[s, e.OPERATION], np.int64(OPERATION_SIZE)), which,
        values, view2(scratch, np.int64(3), np.int64(0)), added, view1(scratch, np.int64(0)), ZERO,
        n, ZERO, view2(head[e.LIMBS], np.int64(2 * e.MOST_ROWS), np.int64(ROW)),
        view2(head[e.OLD_ROWS], head[e.COLUMN_COUNT], np.int64(2 * e.MOST_ROWS)),
        view2(head[e.NEW_ROWS], head[e.COLUMN_COUNT], np.int64(2 * e.MOST_ROWS)),
    )  # fmt: skip
    return np.int64(-1) if state[g.BEYOND] else state[g.TOUCHED]


@bare_helper
def _results(head, sums, start, stop, parts, groups):
    """Write the result rows that groups lose and get, as ordinals; return how many there are."""
    two = np.int64(2 * e.MOST_ROWS)
    before, after = view2(head[e.BEFORE], parts, two), view2(head[e.AFTER], parts, two)
    had, has = view_flags(head[e.HAD], two), view_flags(head[e.HAS], two)
    limbs = view1(head[e.LIMBS], np.int64(LIMB_COUNT))
    old = view2(head[e.OLD_ROWS], head[e.COLUMN_COUNT], two)
    new = view2(head[e.NEW_ROWS], head[e.COLUMN_COUNT], two)
    for s in range(start, stop):
        results = sums[s, e.RESULT_COUNT]
        write_results(
            view2(sums[s, e.HEADS], sums[s, e.HEAD_COUNT], sums[s, e.HEAD_WIDTH]),
            view_u32(sums[s, e.BLOCKS], sums[s, e.BLOCKS_SIZE]),
            view2(sums[s, e.SUMS_UNDO], groups, np.int64(g.UNDO_SIZE)),
            view2(sums[s, e.OPERATIONS], results, np.int64(OPERATION_SIZE)), sums[s, e.KEPT],
            view1(sums[s, e.RESULT_PLACES], results), TRUE if s == start else FALSE, limbs, before,
            after, had, has,
        )  # fmt: skip
    return changed_rows(
        view2(sums[start, e.HEADS], sums[start, e.HEAD_COUNT], sums[start, e.HEAD_WIDTH]),
        view2(sums[start, e.SUMS_UNDO], groups, np.int64(g.UNDO_SIZE)),
        before, after, had, has, old, new,
    )  # fmt: skip


@bare_helper
def _pack_results(head, relations, result, ordinals, count, deletes):
    """Write result rows as the change of a relation; return a status."""
    words, columns = relations[result, e.R_WORDS], relations[result, e.R_COLUMNS]
    fields = view2(relations[result, e.R_FIELDS], columns, np.int64(4))
    row = view2(head[e.ROW], head[e.WIDEST], np.int64(1))
    into = view2(
        changes_at(relations, result, np.int64(deletes)), relations[result, e.R_WORDS], MOST
    )
    for i in range(count):
        for w in range(words):
            row[w, 0] = 0
        for c in range(columns):
            code = ordinals[c, i] - fields[c, 3]
            if code & ~fields[c, 2]:
                return e.UNUSUAL
            row[fields[c, 0], 0] += code << fields[c, 1]
        insert(into, np.int64(i), words, row, ZERO)
    relations[result, e.DELETED if deletes else e.INSERTED] = count
    return e.DONE


@bare_helper
def add_up_groups(head, relations, indexes, steps, s):
    """Run a step that adds up groups."""
    source, result = steps[s, e.SOURCE], steps[s, e.RESULT]
    added = relations[source, e.INSERTED]
    n = added + relations[source, e.DELETED]
    if n == 0:
        return e.DONE
    steps[s, e.HAS_RUN] = 1
    sums = view2(head[e.SUMS], head[e.SUM_COUNT], np.int64(e.SUM_SIZE))
    columns = view2(head[e.COLUMNS], head[e.COLUMN_COUNT], np.int64(2 * e.MOST_ROWS))
    _unpack_changes(relations, source, columns)
    start, stop = steps[s, e.START], steps[s, e.STOP]
    groups, parts = np.int64(0), np.int64(0)
    for i in range(start, stop):
        groups = _add_up(head, sums, i, columns, added, n)
        parts += sums[i, e.RESULT_COUNT]
        if groups < 0:
            return e.UNUSUAL
    old, new = _results(head, sums, start, stop, parts, groups)
    if old > e.MOST_ROWS or new > e.MOST_ROWS:
        return e.TOO_MANY
    two = np.int64(2 * e.MOST_ROWS)
    for deletes in range(2):
        address = head[e.OLD_ROWS] if deletes else head[e.NEW_ROWS]
        ordinals = view2(address, head[e.COLUMN_COUNT], two)
        status = _pack_results(head, relations, result, ordinals, old if deletes else new, deletes)
        if status != e.DONE:
            return status
    return write_single(head, relations, indexes, result)


@bare_helper
def finish_sums(head, aborts):
    """End the epoch of all sums that it has written to."""
    sums = view2(head[e.SUMS], head[e.SUM_COUNT], np.int64(e.SUM_SIZE))
    for s in range(sums.shape[0]):
        if load64(sums[s, e.STATE], np.int64(g.TOUCHED)):
            finish(
                view2(sums[s, e.HEADS], sums[s, e.HEAD_COUNT], sums[s, e.HEAD_WIDTH]),
                view_i32(sums[s, e.TABLE], sums[s, e.TABLE_SIZE]),
                view_u32(sums[s, e.BLOCKS], sums[s, e.BLOCKS_SIZE]),
                view1(sums[s, e.STATE], np.int64(g.STATE)),
                view2(sums[s, e.SUMS_UNDO], sums[s, e.SUMS_UNDO_COUNT], np.int64(g.UNDO_SIZE)),
                aborts,
            )  # fmt: skip
