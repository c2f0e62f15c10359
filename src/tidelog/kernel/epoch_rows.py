"""The rows of a short epoch (kernel/epoch.py): found, inserted into tails, marked as dead.

The net change of a relation is at most MOST rows on each side, sorted, in the layout of its first
order. `write` brings it to all orders of the relation.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import epoch_layout as e
from tidelog.kernel.compiling import ZERO, bare_helper
from tidelog.kernel.described import view1, view2
from tidelog.kernel.descriptors import COUNTS, MARKS, MOST_RUNS, SIZE, WORDS, find_row
from tidelog.kernel.marks import ALIVE, DEAD_NOW
from tidelog.kernel.pointers import load32, store32

MOST = np.int64(e.MOST_ROWS)


@bare_helper
def insert(into, n, words, rows, i):
    """Insert row i of `rows` into n sorted rows; return its place, or -1 - that of an equal row."""
    low, high = np.int64(0), np.int64(n)
    while low < high:
        middle = (low + high) >> 1
        order = np.int64(0)
        for w in range(words):
            held, new = into[w, middle], rows[w, i]
            if held != new:
                order = np.int64(-1) if held < new else np.int64(1)
                break
        if order == 0:
            return -1 - middle
        if order < 0:
            low = middle + 1
        else:
            high = middle
    for w in range(words):
        for at in range(n, low, -1):
            into[w, at] = into[w, at - 1]
        into[w, low] = rows[w, i]
    return low


@bare_helper
def arrange(rows, i, from_fields, fields, columns, words, into, at):
    """Write row i of `rows` in another layout, to `into[:, at]`."""
    for w in range(words):
        into[w, at] = 0
    for c in range(columns):
        value = (rows[from_fields[c, 0], i] >> from_fields[c, 1]) & from_fields[c, 2]
        into[fields[c, 0], at] += value << fields[c, 1]


@bare_helper
def copy_columns(rows, i, copies, count, into):
    """Add columns of row i of `rows` to the row `into`, each in its place there."""
    for c in range(count):
        value = (rows[copies[c, 0], i] >> copies[c, 1]) & copies[c, 2]
        into[copies[c, 3], 0] += value << copies[c, 4]


@bare_helper
def find(runs, words, limit, rows, i, fingers):
    """Find row i of `rows` in any run; `find_row` says what is returned."""
    for r in range(MOST_RUNS):
        fingers[r] = 0
    return find_row(runs, words, limit, rows, i, fingers)


@bare_helper
def note_change(relations, relation):
    """Return REFUSED if only the strategies can follow a change of this relation."""
    if relations[relation, e.REFUSES] and (
        relations[relation, e.INSERTED] or relations[relation, e.DELETED]
    ):
        return e.REFUSED
    return e.DONE


@bare_helper
def changes_at(relations, relation, deleted):
    """Return the address of the inserted rows of a relation, or of the deleted ones."""
    return relations[relation, e.ROWS] + 8 * e.MOST_ROWS * relations[relation, e.R_WORDS] * deleted


@bare_helper
def _kill(head, indexes, x, rows, i, from_fields):
    """Delete row i of `rows` from an order."""
    words, closed = indexes[x, e.X_WORDS], indexes[x, e.CLOSED]
    runs = view2(indexes[x, e.RUNS], closed + 1, indexes[x, e.RUN_WIDTH])
    row = view2(head[e.ROW], head[e.WIDEST], np.int64(1))
    columns = indexes[x, e.X_COLUMNS]
    fields = view2(indexes[x, e.X_FIELDS], columns, np.int64(3))
    arrange(rows, i, from_fields, fields, columns, words, row, ZERO)
    fingers = view1(head[e.FINGERS], np.int64(MOST_RUNS))
    r, at, old = find(runs, words, np.int64(ALIVE), row, ZERO, fingers)
    if r < 0:
        return e.UNUSUAL
    if runs[r, MARKS] == 0:
        head[e.AT_INDEX], head[e.AT_RUN] = x, r
        return e.NO_MARKS
    noted = indexes[x, e.NOTED]
    undo = view2(indexes[x, e.UNDO], np.int64(3), MOST)
    undo[0, noted], undo[1, noted], undo[2, noted] = r, at, old
    indexes[x, e.NOTED] = noted + 1
    store32(runs[r, MARKS], at, np.int64(DEAD_NOW))
    return e.DONE


@bare_helper
def _add(head, indexes, x, rows, i, from_fields, count):
    """Add row i of `rows` to the tail of an order."""
    words, closed = indexes[x, e.X_WORDS], indexes[x, e.CLOSED]
    runs = view2(indexes[x, e.RUNS], closed + 2, indexes[x, e.RUN_WIDTH])
    row = view2(head[e.ROW], head[e.WIDEST], np.int64(1))
    columns = indexes[x, e.X_COLUMNS]
    fields = view2(indexes[x, e.X_FIELDS], columns, np.int64(3))
    arrange(rows, i, from_fields, fields, columns, words, row, ZERO)
    tail = closed + 1
    n = runs[tail, SIZE]
    held = view2(runs[tail, WORDS], words, MOST)
    at = insert(held, n, words, row, ZERO)
    if indexes[x, e.IS_COUNTED]:
        for j in range(n, at, -1):
            store32(runs[tail, COUNTS], j, load32(runs[tail, COUNTS], j - 1))
        store32(runs[tail, COUNTS], at, count)
    runs[tail, SIZE] = n + 1


@bare_helper
def write(head, relations, indexes, relation, counts):
    """Write the net change of a relation to all its orders; `counts` are those of new rows."""
    if not relations[relation, e.IS_STORED]:
        return e.DONE
    for x in range(relations[relation, e.FIRST], relations[relation, e.LAST]):
        if indexes[x, e.CLOSED] < 0:
            return e.UNUSUAL
    relations[relation, e.IS_TOUCHED] = 1
    columns = relations[relation, e.R_COLUMNS]
    biased = view2(relations[relation, e.R_FIELDS], columns, np.int64(4))
    deleted = view2(
        changes_at(relations, relation, np.int64(1)), relations[relation, e.R_WORDS], MOST
    )
    inserted = view2(
        changes_at(relations, relation, np.int64(0)), relations[relation, e.R_WORDS], MOST
    )
    for x in range(relations[relation, e.FIRST], relations[relation, e.LAST]):
        for i in range(relations[relation, e.DELETED]):
            status = _kill(head, indexes, x, deleted, i, biased)
            if status != e.DONE:
                return status
        for i in range(relations[relation, e.INSERTED]):
            _add(head, indexes, x, inserted, i, biased, counts[i])
    return e.DONE


@bare_helper
def write_single(head, relations, indexes, relation):
    """Write the net change of a relation whose rows have one derivation each."""
    counts = view1(head[e.WEIGHTS], np.int64(e.MOST_ROWS + 1))
    for i in range(relations[relation, e.INSERTED]):
        counts[i] = 1
    return write(head, relations, indexes, relation, counts)
