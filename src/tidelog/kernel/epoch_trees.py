"""Steps of a short epoch whose rows have one derivation each (kernel/epoch.py).

That is inequality joins, which store nothing, and semi-joins, whose rows are stored. What the joins
derive goes to the tally, as in kernel/epoch_counting.py. A row is inserted if its weight is
positive, and deleted if it is negative.

An extreme of a semi-join may have moved: one was deleted and another one inserted for the same key.
Then the rows of the guard between the two change (maintain/semi_join.py).
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import epoch_layout as e
from tidelog.kernel import join_layout as k
from tidelog.kernel.compiling import bare_helper
from tidelog.kernel.described import view1, view2
from tidelog.kernel.epoch_counting import derive_all, derive_changes, derive_from
from tidelog.kernel.epoch_rows import MOST, changes_at, write_single

# What becomes of an extreme.
_WIDER, _NARROWER, _GONE, _NEW = range(4)


@bare_helper
def _split(head, relations, relation, n):
    """Make the tally the net change of a relation; return a status."""
    words = relations[relation, e.R_WORDS]
    tally = view2(head[e.TALLY], head[e.WIDEST], np.int64(e.MOST_ROWS + 1))
    weights = view1(head[e.WEIGHTS], np.int64(e.MOST_ROWS + 1))
    inserted = view2(changes_at(relations, relation, np.int64(0)), words, MOST)
    deleted = view2(changes_at(relations, relation, np.int64(1)), words, MOST)
    new = gone = 0
    for i in range(n):
        if weights[i] > 1 or weights[i] < -1:
            return e.UNUSUAL
        if weights[i] > 0:
            for w in range(words):
                inserted[w, new] = tally[w, i]
            new += 1
        elif weights[i] < 0:
            for w in range(words):
                deleted[w, gone] = tally[w, i]
            gone += 1
    relations[relation, e.INSERTED], relations[relation, e.DELETED] = new, gone
    return e.DONE


@bare_helper
def join_trees(head, relations, indexes, steps, s):
    """Run a step of an inequality join."""
    status, n = derive_all(head, relations, indexes, steps, s)
    return status if status != e.DONE else _split(head, relations, steps[s, e.RESULT], n)


@bare_helper
def _key_order(one, i, other, j, fields):
    """Compare the keys of two extremes: all columns but the last."""
    for c in range(fields.shape[0] - 1):
        word, shift, mask = fields[c, 0], fields[c, 1], fields[c, 2]
        left, right = (one[word, i] >> shift) & mask, (other[word, j] >> shift) & mask
        if left != right:
            return -1 if left < right else 1
    return 0


@bare_helper
def _add_moved(rows, count, words, old, i, new, j, fields, moved, is_wider):
    """Write a row of a key, and of the values between which rows of the guard change."""
    for w in range(words):
        rows[w, count] = 0
    last = fields.shape[0] - 1
    for c in range(last):
        code = (old[fields[c, 0], i] >> fields[c, 1]) & fields[c, 2]
        rows[moved[c, 0], count] += code << moved[c, 1]
    before = (old[fields[last, 0], i] >> fields[last, 1]) & fields[last, 2]
    after = (new[fields[last, 0], j] >> fields[last, 1]) & fields[last, 2]
    rows[moved[last, 0], count] += (before if is_wider else after) << moved[last, 1]
    rows[moved[last + 1, 0], count] += (after if is_wider else before) << moved[last + 1, 1]


@bare_helper
def _select(which, rows, relations, extreme, moved, is_max):
    """Write the extremes of which a thing has become; return how many there are."""
    columns, words = relations[extreme, e.R_COLUMNS], relations[extreme, e.R_WORDS]
    fields = view2(relations[extreme, e.R_FIELDS], columns, np.int64(4))
    old = view2(changes_at(relations, extreme, np.int64(1)), words, MOST)
    new = view2(changes_at(relations, extreme, np.int64(0)), words, MOST)
    last = columns - 1
    count, i, j = 0, 0, 0
    while i < relations[extreme, e.DELETED] or j < relations[extreme, e.INSERTED]:
        if j == relations[extreme, e.INSERTED]:
            order = -1
        elif i == relations[extreme, e.DELETED]:
            order = 1
        else:
            order = _key_order(old, i, new, j, fields)
        if order == 0:
            before = (old[fields[last, 0], i] >> fields[last, 1]) & fields[last, 2]
            after = (new[fields[last, 0], j] >> fields[last, 1]) & fields[last, 2]
            is_wider = (after > before) == (is_max != 0)
            if which == (_WIDER if is_wider else _NARROWER):
                _add_moved(
                    rows, count, rows.shape[0], old, i, new, j, fields, moved, is_wider
                )  # fmt: skip
                count += 1
            i += 1
            j += 1
        elif order < 0:
            if which == _GONE:
                for w in range(words):
                    rows[w, count] = old[w, i]
                count += 1
            i += 1
        else:
            if which == _NEW:
                for w in range(words):
                    rows[w, count] = new[w, j]
                count += 1
            j += 1
    return count


@bare_helper
def follow_extremes(head, relations, indexes, steps, s):
    """Run a step of a semi-join. Its drives are moved extremes, other extremes, and the guard."""
    drives = view2(head[e.DRIVES], head[e.DRIVE_COUNT], np.int64(e.DRIVE_SIZE))
    reads = view2(head[e.READS], head[e.READ_COUNT], np.int64(e.READ_SIZE))
    joins = view2(head[e.JOINS], head[e.JOIN_COUNT], np.int64(k.DESCRIPTION_SIZE))
    result, extreme, start = steps[s, e.RESULT], steps[s, e.SOURCE], steps[s, e.START]
    guard = drives[start + 2, e.D_SOURCE]
    is_moved = relations[extreme, e.INSERTED] != 0 or relations[extreme, e.DELETED] != 0
    if not (is_moved or relations[guard, e.INSERTED] or relations[guard, e.DELETED]):
        return e.DONE
    steps[s, e.HAS_RUN] = 1
    words, columns = relations[result, e.R_WORDS], relations[extreme, e.R_COLUMNS]
    fields = view2(relations[extreme, e.R_FIELDS], columns, np.int64(4))
    moved = view2(drives[start, e.COPIES], columns + 1, np.int64(4))
    rows = view2(head[e.SELECTED], head[e.WIDEST], MOST)
    n, found = np.int64(0), np.int64(0)
    for which in range(4):
        count = _select(which, rows, relations, extreme, moved, steps[s, e.IS_MAX])
        if count == 0:
            continue
        is_between = which in (_WIDER, _NARROWER)
        status, n, found = derive_from(
            head, indexes, joins, reads, drives[start if is_between else start + 1], rows,
            np.int64(count), moved if is_between else fields, words,
            np.int64(1 if which in (_WIDER, _NEW) else -1), n, found,
        )  # fmt: skip
        if status != e.DONE:
            return status
    status, n, found = derive_changes(
        head, relations, indexes, joins, reads, drives[start + 2], words, n, found
    )
    if status != e.DONE:
        return status
    steps[s, e.FOUND] = found
    status = _split(head, relations, result, n)
    return status if status != e.DONE else write_single(head, relations, indexes, result)
