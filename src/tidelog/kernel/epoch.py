"""A short epoch, in one call: from the encoded rows to the net changes (maintain/epoch_program.py).

The layers of a program are *steps*. A step reads the net changes of relations below, and writes
that of its own:

    COUNT_STEP       joins from each changed atom, or copies; adds up what they derive, with its
                     sign; a row is inserted when its count leaves 0, and deleted when it reaches 0
    SUM_STEP         adds changed rows to the sums of their groups; the result of a group is a row
    EXTREME_STEP     looks up the first or last row of the groups of changed rows
    TREE_STEP        joins; what it derives is the change of an inequality join, and is not stored
    SEMI_JOIN_STEP   joins from changes of a guard, and from extremes that have moved

Inserted rows go to the tail of each order, and deleted rows are marked, as in any other epoch
(store/index.py). `end` moves the tail into the *open run* of the order, which has room, and
takes out its dead rows. So nothing is allocated, and no run is made.

Nothing unusual is done here. If a value does not fit, a computation fails, or there are more rows
than room, the kernel undoes what it has done and returns a status (kernel/epoch_layout.py). Then
the strategies run the epoch from its start.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import epoch_layout as e
from tidelog.kernel.compiling import FALSE, TRUE, ZERO, bare_helper, kernel
from tidelog.kernel.described import view1, view2
from tidelog.kernel.descriptors import MOST_RUNS, SIZE
from tidelog.kernel.epoch_counting import count_derivations
from tidelog.kernel.epoch_end import abort_order, commit_deaths, commit_tail
from tidelog.kernel.epoch_extremes import find_extremes
from tidelog.kernel.epoch_rows import MOST, changes_at, find, insert, note_change, write
from tidelog.kernel.epoch_sums import add_up_groups, finish_sums
from tidelog.kernel.epoch_trees import follow_extremes, join_trees
from tidelog.kernel.marks import ALIVE


@bare_helper
def _give(head, relations, indexes, relation, ordinals, deletes):
    """Add the given rows that change something to the net change of their relation."""
    words, columns = relations[relation, e.R_WORDS], relations[relation, e.R_COLUMNS]
    fields = view2(relations[relation, e.R_FIELDS], columns, np.int64(4))
    row = view2(head[e.ROW], head[e.WIDEST], np.int64(1))
    fingers = view1(head[e.FINGERS], np.int64(MOST_RUNS))
    x = relations[relation, e.FIRST]
    if indexes[x, e.CLOSED] < 0:
        return e.UNUSUAL
    runs = view2(indexes[x, e.RUNS], indexes[x, e.CLOSED] + 1, indexes[x, e.RUN_WIDTH])
    into = view2(changes_at(relations, relation, deletes), relations[relation, e.R_WORDS], MOST)
    ignored = view2(head[e.IGNORED], head[e.WIDEST] + 2, np.int64(2 * e.MOST_ROWS))
    column = e.DELETED if deletes else e.INSERTED
    for i in range(ordinals.shape[1]):
        for w in range(words):
            row[w, 0] = 0
        for c in range(columns):
            code = ordinals[c, i] - fields[c, 3]
            if code & ~fields[c, 2]:
                return e.UNUSUAL
            row[fields[c, 0], 0] += code << fields[c, 1]
        r, _, _ = find(runs, words, np.int64(ALIVE), row, ZERO, fingers)
        if (r >= 0) == (deletes != 0):
            n = relations[relation, column]
            if n == e.MOST_ROWS:
                return e.TOO_MANY
            if insert(into, n, words, row, ZERO) >= 0:
                relations[relation, column] = n + 1
        else:
            n = head[e.IGNORED_COUNT]
            if n == 2 * e.MOST_ROWS:
                return e.TOO_MANY
            ignored[0, n], ignored[1, n] = relation, deletes
            for w in range(words):
                ignored[2 + w, n] = row[w, 0]
            head[e.IGNORED_COUNT] = n + 1
    return e.DONE


@kernel
def give(head, is_first, relation, adds, removes):
    """Insert and delete given rows, columns of ordinals, in one relation."""
    relations = view2(head[e.RELATIONS], head[e.RELATION_COUNT], np.int64(e.RELATION_SIZE))
    indexes = view2(head[e.INDEXES], head[e.INDEX_COUNT], np.int64(e.INDEX_SIZE))
    if is_first:
        for i in range(relations.shape[0]):
            relations[i, e.INSERTED] = relations[i, e.DELETED] = 0
        head[e.IGNORED_COUNT] = head[e.GIVEN_INSERTED] = head[e.GIVEN_DELETED] = 0
    status = _give(head, relations, indexes, relation, adds, np.int64(0))
    if status == e.DONE:
        status = _give(head, relations, indexes, relation, removes, np.int64(1))
    if status == e.DONE:
        status = note_change(relations, relation)
    if status == e.DONE:
        counts = view1(head[e.WEIGHTS], np.int64(e.MOST_ROWS + 1))
        status = write(head, relations, indexes, relation, counts)
    head[e.GIVEN_INSERTED] += relations[relation, e.INSERTED]
    head[e.GIVEN_DELETED] += relations[relation, e.DELETED]
    if status != e.DONE:
        end(head, TRUE)
    return status


@bare_helper
def _has_room(head, relations, indexes):
    """Return ROOM if an open run, or a log, cannot take what the epoch has done."""
    for relation in range(relations.shape[0]):
        if relations[relation, e.IS_TOUCHED]:
            for x in range(relations[relation, e.FIRST], relations[relation, e.LAST]):
                closed = indexes[x, e.CLOSED]
                runs = view2(indexes[x, e.RUNS], closed + 2, indexes[x, e.RUN_WIDTH])
                noted = indexes[x, e.NOTED] + indexes[x, e.COUNTS_NOTED]
                if (
                    runs[closed, SIZE] + runs[closed + 1, SIZE] > e.OPEN_ROWS
                    or indexes[x, e.LOGGED] + noted > e.LOG_ROWS
                ):
                    head[e.AT_INDEX] = x
                    return e.ROOM
    return e.DONE


@bare_helper
def _steps(head, relations, indexes):
    """Run all steps; list the relations that have changed."""
    steps = view2(head[e.STEPS], head[e.STEP_COUNT], np.int64(e.STEP_SIZE))
    for s in range(steps.shape[0]):
        steps[s, e.HAS_RUN] = steps[s, e.FOUND] = 0
        kind = steps[s, e.KIND]
        if kind == e.COUNT_STEP:
            status = count_derivations(head, relations, indexes, steps, s)
        elif kind == e.SUM_STEP:
            status = add_up_groups(head, relations, indexes, steps, s)
        elif kind == e.EXTREME_STEP:
            status = find_extremes(head, relations, indexes, steps, s)
        elif kind == e.TREE_STEP:
            status = join_trees(head, relations, indexes, steps, s)
        else:
            status = follow_extremes(head, relations, indexes, steps, s)
        if status == e.DONE:
            status = note_change(relations, steps[s, e.RESULT])
        if status != e.DONE:
            return status
    touched = view1(head[e.TOUCHED], head[e.RELATION_COUNT])
    n = 0
    for relation in range(relations.shape[0]):
        if relations[relation, e.INSERTED] or relations[relation, e.DELETED]:
            touched[n] = relation
            n += 1
    head[e.TOUCHED_COUNT] = n
    return _has_room(head, relations, indexes)


@kernel
def derive(head, commits):
    """Run the layers on the changes of the given rows; commit the epoch, or leave that open."""
    relations = view2(head[e.RELATIONS], head[e.RELATION_COUNT], np.int64(e.RELATION_SIZE))
    indexes = view2(head[e.INDEXES], head[e.INDEX_COUNT], np.int64(e.INDEX_SIZE))
    status = _steps(head, relations, indexes)
    if status != e.DONE:
        end(head, TRUE)
    elif commits:
        end(head, FALSE)
    return status


@kernel
def end(head, aborts):
    """Make the new version the only one, or put everything back as it was before the epoch."""
    relations = view2(head[e.RELATIONS], head[e.RELATION_COUNT], np.int64(e.RELATION_SIZE))
    indexes = view2(head[e.INDEXES], head[e.INDEX_COUNT], np.int64(e.INDEX_SIZE))
    for relation in range(relations.shape[0]):
        if aborts:
            relations[relation, e.INSERTED] = relations[relation, e.DELETED] = 0
        if relations[relation, e.IS_TOUCHED]:
            relations[relation, e.IS_TOUCHED] = 0
            for x in range(relations[relation, e.FIRST], relations[relation, e.LAST]):
                if aborts:
                    abort_order(indexes, x)
                else:
                    commit_deaths(indexes, x)
                    commit_tail(indexes, x)
                indexes[x, e.IS_AHEAD] = 1
    finish_sums(head, aborts)
