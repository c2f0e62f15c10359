"""The step of a short epoch that counts derivations (kernel/epoch.py).

    count(h) = sum over rules and atoms i of   new A1 .. A(i-1), delta Ai, old A(i+1) .. An

Each changed atom drives a join. What the joins derive goes to a *tally*, sorted rows with signed
weights, which is then applied to the counts of the head.
"""

from __future__ import annotations

import numpy as np

from tidelog.kernel import epoch_layout as e
from tidelog.kernel import join_layout as k
from tidelog.kernel.compiling import ZERO, bare_helper
from tidelog.kernel.described import array1, array2, array3, call_join, view1, view2
from tidelog.kernel.descriptors import MOST_RUNS, SIZE, WIDE, WORDS, count_of, set_count
from tidelog.kernel.epoch_rows import (
    MOST,
    arrange,
    changes_at,
    copy_columns,
    find,
    insert,
    write,
)
from tidelog.kernel.join import begin
from tidelog.kernel.marks import ALIVE, DEAD_NOW
from tidelog.kernel.pointers import address64

_FUEL = 50_000
_PLAIN = np.int64(k.PLAIN)
_MOST_NARROW = (1 << 31) - 1


@bare_helper
def _tally(head, n, words, rows, count, weight):
    """Add rows to the tally, each with the same weight; return how many it has, or -1 if full."""
    tally = view2(head[e.TALLY], head[e.WIDEST], np.int64(e.MOST_ROWS + 1))
    weights = view1(head[e.WEIGHTS], np.int64(e.MOST_ROWS + 1))
    for i in range(count):
        at = insert(tally, n, words, rows, i)
        if at < 0:
            weights[-1 - at] += weight
            continue
        for j in range(n, at, -1):
            weights[j] = weights[j - 1]
        weights[at] = weight
        n += 1
        if n > e.MOST_ROWS:
            return np.int64(-1)
    return n


@bare_helper
def _copy(head, drive, rows, count, words, n, weight):
    """Add changed rows to the tally, with some of their columns."""
    row = view2(head[e.ROW], head[e.WIDEST], np.int64(1))
    copies = view2(drive[e.COPIES], drive[e.COPY_COUNT], np.int64(5))
    for i in range(count):
        for w in range(words):
            row[w, 0] = 0
        copy_columns(rows, i, copies, drive[e.COPY_COUNT], row)
        n = _tally(head, n, words, row, np.int64(1), weight)
        if n < 0:
            break
    return n


@bare_helper
def _read(program, indexes, reads, start, stop):
    """Make the atoms of a join read their orders; return False if one has to be read first."""
    atoms, runs = array2(program, k.ATOMS), array3(program, k.RUNS)
    high = array3(program, k.HIGH)
    for i in range(start, stop):
        atom, x = reads[i, e.READ_ATOM], reads[i, e.READ_INDEX]
        if indexes[x, e.CLOSED] < 0:
            return False
        is_new = reads[i, e.READS_NEW]
        count, width = indexes[x, e.CLOSED] + 1 + is_new, indexes[x, e.RUN_WIDTH]
        held = view2(indexes[x, e.RUNS], count, width)
        for r in range(count):
            for c in range(width):
                runs[atom, r, c] = held[r, c]
            high[atom, 0, r] = held[r, SIZE]
        atoms[atom, k.RUN_COUNT] = count
        atoms[atom, k.LIMIT] = ALIVE if is_new else DEAD_NOW
        atoms[atom, k.USES_LEVEL] = 0
        atoms[atom, k.EXCLUDES_FLAGGED] = 0
    return True


@bare_helper
def _drive(head, program, rows, count, from_fields):
    """Make the driver of a join read changed rows, in its own layout, and begin."""
    atom, words = program[k.DRIVER], program[k.DRIVER_WORDS]
    arranged = view2(head[e.ARRANGED], head[e.WIDEST], MOST)
    row = view2(head[e.ROW], head[e.WIDEST], np.int64(1))
    fields = view2(program[k.DRIVER_FIELDS], from_fields.shape[0], np.int64(3))
    for i in range(count):
        arrange(rows, i, from_fields, fields, fields.shape[0], words, row, ZERO)
        insert(arranged, i, words, row, ZERO)
    atoms, runs = array2(program, k.ATOMS), array3(program, k.RUNS)
    atoms[atom, k.RUN_COUNT] = 1
    atoms[atom, k.LIMIT] = ALIVE
    atoms[atom, k.USES_LEVEL] = 0
    atoms[atom, k.EXCLUDES_FLAGGED] = 0
    for c in range(WORDS):
        runs[atom, 0, c] = 0
    runs[atom, 0, SIZE] = count
    for w in range(words):
        runs[atom, 0, WORDS + w] = address64(arranged) + 8 * w * e.MOST_ROWS
    high = array3(program, k.HIGH)
    high[atom, 0, 0] = count
    begin(
        array1(program, k.STATE), array1(program, k.SLOTS), array1(program, k.INITIAL),
        array3(program, k.CURSOR), array1(program, k.REST), array1(program, k.FLAGGED), ZERO,
    )  # fmt: skip


@bare_helper
def _join(program, out):
    """Run a join to its end; return its status, and how many rows it has written."""
    state = array1(program, k.STATE)
    state[k.FUEL] = _FUEL
    status = call_join(
        program[k.INTERPRETER],
        array2(program, k.STEPS), array2(program, k.PARTS), array2(program, k.COLUMNS),
        array2(program, k.SEGMENTS), array3(program, k.FIELDS), array2(program, k.ATOMS),
        array3(program, k.RUNS), array2(program, k.CODE), array2(program, k.EMITS),
        array2(program, k.PIECES), array1(program, k.SLOTS), array3(program, k.LOW),
        array3(program, k.HIGH), array3(program, k.CURSOR), array1(program, k.REST),
        array1(program, k.FLAGGED), out, state, _PLAIN,
    )  # fmt: skip
    if status == k.WIDEN or state[k.FAILURE] != 0:
        return e.UNUSUAL, ZERO
    if status != k.DONE:
        return e.TOO_MANY, ZERO
    return e.DONE, state[k.FILLED]


@bare_helper
def derive_from(
    head, indexes, joins, reads, drive, rows, count, fields, words, weight, n, found
):  # fmt: skip
    """Join a rule from some rows, and add what it derives to the tally.

    Returns a status, the size of the tally, and how many rows were found.
    """
    if drive[e.D_JOIN] == e.LATER:
        return e.UNUSUAL, n, found
    program = joins[drive[e.D_JOIN]]
    if not _read(program, indexes, reads, drive[e.READS_START], drive[e.READS_STOP]):
        return e.UNUSUAL, n, found
    _drive(head, program, rows, count, fields)
    out = view2(head[e.OUT], words, MOST)
    status, filled = _join(program, out)
    if status != e.DONE:
        return status, n, found
    n = _tally(head, n, words, out, filled, weight)
    return e.DONE if n >= 0 else e.TOO_MANY, n, found + filled


@bare_helper
def derive_changes(head, relations, indexes, joins, reads, drive, words, n, found):
    """Add to the tally what a rule derives from a change; return status, tally, instantiations."""
    source = drive[e.D_SOURCE]
    biased = view2(relations[source, e.R_FIELDS], relations[source, e.R_COLUMNS], np.int64(4))
    status = np.int64(e.DONE)
    for deleted in range(2):
        count = relations[source, e.DELETED if deleted else e.INSERTED]
        if count == 0:
            continue
        rows = view2(
            changes_at(relations, source, np.int64(deleted)), relations[source, e.R_WORDS], MOST
        )
        weight = -drive[e.SIGN] if deleted else drive[e.SIGN]
        if drive[e.D_JOIN] == e.NO_JOIN:
            n = _copy(head, drive, rows, count, words, n, weight)
            found += count
            if n < 0:
                return e.TOO_MANY, n, found
        else:
            status, n, found = derive_from(
                head, indexes, joins, reads, drive, rows, count, biased, words, weight, n, found
            )
            if status != e.DONE:
                return status, n, found
    return status, n, found


@bare_helper
def _apply(head, relations, indexes, relation, n):
    """Apply the tally to the counts of a relation."""
    words = relations[relation, e.R_WORDS]
    tally = view2(head[e.TALLY], head[e.WIDEST], np.int64(e.MOST_ROWS + 1))
    weights = view1(head[e.WEIGHTS], np.int64(e.MOST_ROWS + 1))
    inserted = view2(
        changes_at(relations, relation, np.int64(0)), relations[relation, e.R_WORDS], MOST
    )
    deleted = view2(
        changes_at(relations, relation, np.int64(1)), relations[relation, e.R_WORDS], MOST
    )
    fingers = view1(head[e.FINGERS], np.int64(MOST_RUNS))
    x = relations[relation, e.FIRST]
    if indexes[x, e.CLOSED] < 0:
        return e.UNUSUAL
    runs = view2(indexes[x, e.RUNS], indexes[x, e.CLOSED] + 1, indexes[x, e.RUN_WIDTH])
    undo = view2(indexes[x, e.COUNTS_UNDO], np.int64(3), MOST)
    relations[relation, e.IS_TOUCHED] = 1
    new = gone = 0
    for i in range(n):
        weight = weights[i]
        if weight == 0:
            continue
        r, at, _ = find(runs, words, np.int64(ALIVE), tally, i, fingers)
        if r < 0:
            if weight < 0:
                return e.UNUSUAL
            for w in range(words):
                inserted[w, new] = tally[w, i]
            weights[new] = weight  # those before `i` are done
            new += 1
            continue
        held = count_of(runs, r, at)
        count = held + weight
        if count < 0 or (count > _MOST_NARROW and not runs[r, WIDE]):
            return e.UNUSUAL
        noted = indexes[x, e.COUNTS_NOTED]
        undo[0, noted], undo[1, noted], undo[2, noted] = r, at, held
        indexes[x, e.COUNTS_NOTED] = noted + 1
        set_count(runs, r, at, count)
        if count == 0:
            for w in range(words):
                deleted[w, gone] = tally[w, i]
            gone += 1
    relations[relation, e.INSERTED], relations[relation, e.DELETED] = new, gone
    return write(head, relations, indexes, relation, weights)


@bare_helper
def derive_all(head, relations, indexes, steps, s):
    """Add to the tally what the rules of a step derive; return a status, and its size."""
    drives = view2(head[e.DRIVES], head[e.DRIVE_COUNT], np.int64(e.DRIVE_SIZE))
    reads = view2(head[e.READS], head[e.READ_COUNT], np.int64(e.READ_SIZE))
    joins = view2(head[e.JOINS], head[e.JOIN_COUNT], np.int64(k.DESCRIPTION_SIZE))
    words = relations[steps[s, e.RESULT], e.R_WORDS]
    n, found = np.int64(0), np.int64(0)
    for i in range(steps[s, e.START], steps[s, e.STOP]):
        status, n, found = derive_changes(
            head, relations, indexes, joins, reads, drives[i], words, n, found
        )
        if status != e.DONE:
            return status, n
        source = drives[i, e.D_SOURCE]
        if relations[source, e.INSERTED] or relations[source, e.DELETED]:
            steps[s, e.HAS_RUN] = 1
    steps[s, e.FOUND] = found
    return np.int64(e.DONE), n


@bare_helper
def count_derivations(head, relations, indexes, steps, s):
    """Run a step that counts derivations."""
    result = steps[s, e.RESULT]
    words = relations[result, e.R_WORDS]
    status, n = derive_all(head, relations, indexes, steps, s)
    if status != e.DONE:
        return status
    given = steps[s, e.GIVEN]
    if relations[given, e.INSERTED] or relations[given, e.DELETED]:
        steps[s, e.HAS_RUN] = 1
    if relations[given, e.INSERTED]:
        rows = view2(changes_at(relations, given, np.int64(0)), relations[given, e.R_WORDS], MOST)
        n = _tally(head, n, words, rows, relations[given, e.INSERTED], np.int64(1))
    if n >= 0 and relations[given, e.DELETED]:
        rows = view2(changes_at(relations, given, np.int64(1)), relations[given, e.R_WORDS], MOST)
        n = _tally(head, n, words, rows, relations[given, e.DELETED], np.int64(-1))
    if n < 0:
        return e.TOO_MANY
    return _apply(head, relations, indexes, result, n) if n else e.DONE
