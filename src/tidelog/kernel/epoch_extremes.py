"""The step of a short epoch that looks up extremes of groups (kernel/epoch.py).

The source has an order by group and value, so the extreme of a group is its first or last row that
is alive (maintain/extremes.py). The groups of all changed rows are looked up again.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import epoch_layout as e
from tidelog.kernel.compiling import FALSE, ONE, ZERO, bare_helper
from tidelog.kernel.described import view2
from tidelog.kernel.descriptors import extreme_of
from tidelog.kernel.epoch_rows import MOST, changes_at, copy_columns, insert, write_single
from tidelog.kernel.marks import ALIVE


@bare_helper
def _range_of(rows, i, copies, count, lowest, highest, low, high):
    """Write the first and the last row that a group may have in an order."""
    for w in range(lowest.shape[0]):
        low[w, 0], high[w, 0] = lowest[w, 0], highest[w, 0]
    copy_columns(rows, i, copies, count, low)
    copy_columns(rows, i, copies, count, high)


@bare_helper
def _extreme(
    head, indexes, x, with_tail, rows, i, copies, count, lowest, highest, largest, field
):  # fmt: skip
    """Return whether the group of a row has rows in an order, and its extreme, as a code."""
    words, closed = indexes[x, e.X_WORDS], indexes[x, e.CLOSED]
    runs = view2(indexes[x, e.RUNS], closed + 1 + with_tail, indexes[x, e.RUN_WIDTH])
    low, high = view2(head[e.LOW], head[e.WIDEST], ONE), view2(head[e.HIGH], head[e.WIDEST], ONE)
    _range_of(
        rows, i, copies, count, view2(lowest, words, ONE), view2(highest, words, ONE), low, high
    )
    return extreme_of(
        runs, words, low, high, ZERO, largest, np.int64(ALIVE), field[0], field[1], field[2]
    )


@bare_helper
def _add_result(head, into, n, words, rows, i, copies, count, field, code):
    """Add the result row of a group to sorted rows, unless it is there; return their number."""
    row = view2(head[e.ROW], head[e.WIDEST], ONE)
    for w in range(words):
        row[w, 0] = 0
    copy_columns(rows, i, copies, count, row)
    row[field[0], 0] += code << field[1]
    return n + 1 if insert(into, n, words, row, ZERO) >= 0 else n


@bare_helper
def _keep_different(one, n, other, m, words):
    """Take the rows that are in both out of two sets of sorted rows; return their sizes."""
    i = j = left = right = 0
    while i < n or j < m:
        order = np.int64(0)
        if i == n or j == m:
            order = np.int64(1) if i == n else np.int64(-1)
        else:
            for w in range(words):
                if one[w, i] != other[w, j]:
                    order = np.int64(-1) if one[w, i] < other[w, j] else np.int64(1)
                    break
        if order < 0:
            for w in range(words):
                one[w, left] = one[w, i]
            left += 1
        elif order > 0:
            for w in range(words):
                other[w, right] = other[w, j]
            right += 1
        i += order <= 0
        j += order >= 0
    return left, right


@bare_helper
def find_extremes(head, relations, indexes, steps, s):
    """Run a step that looks up the extremes of groups."""
    source, result = steps[s, e.SOURCE], steps[s, e.RESULT]
    if relations[source, e.INSERTED] == 0 and relations[source, e.DELETED] == 0:
        return e.DONE
    steps[s, e.HAS_RUN] = 1
    lookup = view2(head[e.LOOKUPS], head[e.LOOKUP_COUNT], np.int64(e.LOOKUP_SIZE))[
        steps[s, e.START]
    ]
    ordered, first = lookup[e.IN_ORDER], relations[result, e.FIRST]
    if indexes[ordered, e.CLOSED] < 0 or indexes[first, e.CLOSED] < 0:
        return e.UNUSUAL
    words, columns = relations[result, e.R_WORDS], relations[result, e.R_COLUMNS]
    field = view2(relations[result, e.R_FIELDS], columns, np.int64(4))[columns - 1]
    count = lookup[e.GROUP_COUNT]
    to_order = view2(lookup[e.TO_ORDER], count, np.int64(5))
    to_result = view2(lookup[e.TO_RESULT], count, np.int64(5))
    inserted = view2(changes_at(relations, result, np.int64(0)), words, MOST)
    deleted = view2(changes_at(relations, result, np.int64(1)), words, MOST)
    new = gone = np.int64(0)
    for which in range(2):
        rows = view2(
            changes_at(relations, source, np.int64(which)), relations[source, e.R_WORDS], MOST
        )
        for i in range(relations[source, e.DELETED if which else e.INSERTED]):
            if max(new, gone) == e.MOST_ROWS:
                return e.TOO_MANY
            is_there, code = _extreme(
                head, indexes, ordered, ONE, rows, i, to_order, count, lookup[e.LOWEST],
                lookup[e.HIGHEST], lookup[e.IS_LARGEST] != 0, lookup[e.V_WORD:e.V_BIAS],
            )  # fmt: skip
            if is_there:
                code += lookup[e.V_BIAS] - field[3]
                if code & ~field[2]:
                    return e.UNUSUAL
                new = _add_result(
                    head, inserted, new, words, rows, i, to_result, count, field, code
                )
            was_there, code = _extreme(
                head, indexes, first, ZERO, rows, i, to_result, count, lookup[e.RESULT_LOWEST],
                lookup[e.RESULT_HIGHEST], FALSE, field,
            )  # fmt: skip
            if was_there:
                gone = _add_result(
                    head, deleted, gone, words, rows, i, to_result, count, field, code
                )
    steps[s, e.FOUND] = gone
    new, gone = _keep_different(inserted, new, deleted, gone, words)
    relations[result, e.INSERTED], relations[result, e.DELETED] = new, gone
    return write_single(head, relations, indexes, result)
