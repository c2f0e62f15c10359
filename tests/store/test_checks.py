"""`check` finds what is broken, and what once went wrong stays right."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest

from tests.store.model import rows_of, words_of
from tidelog.kernel.marks import DEAD, DEAD_NOW, FLAG, GONE
from tidelog.store import index
from tidelog.store.domain import Domain
from tidelog.store.index import MOST_RUNS
from tidelog.store.merging import merge
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run, compact_counts
from tidelog.store.versions import Version

ROWS = [(a, b) for a in range(5) for b in range(4)]
SWAPPED = (1, 0)


def relation_with(rows: list[tuple[int, int]], *, raw: bool = False) -> StoredRelation:
    first, second = Domain(), Domain()
    first.widen(0, 100)
    second.widen(-(2**63) if raw else 0, 100)
    relation = StoredRelation("r", [first, second], counted=True)
    ones = np.ones(len(rows), np.int64)
    relation.replace(words_of(relation, rows), np.zeros(len(rows), np.int32), ones)
    return relation


def marks(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def shown(relation: StoredRelation, version: Version) -> list[tuple[int, ...]]:
    return rows_of(relation, relation.rows(version))


# --- corruption -------------------------------------------------------------------------------


def swap_rows(relation: StoredRelation) -> None:
    words = relation.primary.runs[0].words
    words[:, [0, 1]] = words[:, [1, 0]]


def repeat_row(relation: StoredRelation) -> None:
    words = relation.primary.runs[0].words
    words[:, 1] = words[:, 0]


def shorten_marks(relation: StoredRelation) -> None:
    relation.primary.runs[0]._marks = np.zeros(3, np.int32)


def widen_marks(relation: StoredRelation) -> None:
    run = relation.primary.runs[0]
    run._marks = np.zeros(len(run), np.int64)  # type: ignore[assignment]


def shorten_counts(relation: StoredRelation) -> None:
    relation.primary.runs[0].counts = np.zeros(3, np.int32)


def move_words(relation: StoredRelation) -> None:
    run = relation.primary.runs[0]
    run.words = run.words.copy()


def move_marks(relation: StoredRelation) -> None:
    run = relation.primary.runs[0]
    marks = run.need_marks()
    run.describe()
    run._marks = marks.copy()


def forget_marks(relation: StoredRelation) -> None:
    run = relation.primary.runs[0]
    run.need_marks()
    run.describe()
    run._marks = None


def stride_words(relation: StoredRelation) -> None:
    run = relation.primary.runs[0]
    run.words = run.words[:, ::2]


def lose_row(relation: StoredRelation) -> None:
    run = relation.index(SWAPPED).runs[0]
    run.need_marks()[3] = DEAD
    run.dead = 1


def forget_the_dead(relation: StoredRelation) -> None:
    relation.primary.runs[0].need_marks()[3] = DEAD


def change_level(relation: StoredRelation) -> None:
    relation.index(SWAPPED).runs[0].need_marks()[3] = 2


def leave_mark(relation: StoredRelation) -> None:
    for order in (relation.primary, relation.index(SWAPPED)):
        order.runs[0].need_marks()[0] = DEAD_NOW


def leave_flag(relation: StoredRelation) -> None:
    for order in (relation.primary, relation.index(SWAPPED)):
        order.runs[0].need_marks()[0] = FLAG


def hold_twice(relation: StoredRelation) -> None:
    for order in relation.indexes.values():
        counts = order.runs[0].counts
        order.runs.append(
            Run(order.runs[0].words[:, :1], None, None if counts is None else counts[:1])
        )
        order.forget_descriptors()


def count_elsewhere(relation: StoredRelation) -> None:
    run = relation.index(SWAPPED).runs[0]
    run.counts = np.ones(len(run), np.int32)


def too_many_runs(relation: StoredRelation) -> None:
    runs = relation.primary.runs
    runs += [Run(runs[0].words[:, :0]) for _ in range(MOST_RUNS)]


def other_layout(relation: StoredRelation) -> None:
    run = relation.primary.runs[0]
    run.rewrite(np.vstack([run.words, run.words]))


def widen_only(relation: StoredRelation) -> None:
    relation.domains[0].widen(0, 10**6)


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (swap_rows, "not sorted"),
        (repeat_row, "not unique"),
        (shorten_marks, "marks do not fit"),
        (widen_marks, "marks are not of 32 bits"),
        (shorten_counts, "counts do not fit"),
        (move_words, "arrays have moved"),
        (move_marks, "arrays have moved"),
        (forget_marks, "arrays have moved"),
        (stride_words, "do not fit"),
        (forget_the_dead, "1 rows are dead, not 0"),
        (lose_row, "holds other rows"),
        (change_level, "holds other marks"),
        (leave_mark, "marks of an epoch that ended"),
        (leave_flag, "marks of an epoch that ended"),
        (hold_twice, "holds a row twice"),
        (count_elsewhere, "is counted"),
        (too_many_runs, "too many runs"),
        (other_layout, "another layout"),
        (widen_only, "out of date"),
    ],
)
def test_a_broken_relation_is_found(
    corrupt: Callable[[StoredRelation], None], message: str
) -> None:
    relation = relation_with(ROWS)
    relation.index(SWAPPED)
    relation.check()
    corrupt(relation)
    with pytest.raises(AssertionError, match=message):
        relation.check()


# --- found by these tests ---------------------------------------------------------------------


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("commits", [False, True])
def test_an_order_built_during_an_epoch_ends_with_it(raw: bool, commits: bool) -> None:
    relation = relation_with(ROWS, raw=raw)
    relation.set_marks(words_of(relation, [(0, 1), (4, 3)]), marks(DEAD_NOW, 2))
    relation.add(words_of(relation, [(9, 9)]), None, np.ones(1, np.int64))
    relation.index(SWAPPED)
    relation.set_marks(words_of(relation, [(0, 1), (2, 2), (9, 9)]), marks(3, DEAD_NOW, 1))
    relation.check()
    (relation.commit if commits else relation.abort)()
    relation.check()
    expected = sorted({*ROWS, (9, 9)} - {(2, 2)}) if commits else ROWS
    assert all(shown(relation, version) == expected for version in Version)
    found = relation.find(words_of(relation, [(0, 1), (4, 3)]))
    assert found.marks.tolist() == ([3, 2] if commits else [0, 0])


def test_flagged_rows_of_the_tail_outlive_the_next_rows() -> None:
    relation = relation_with(ROWS)
    relation.add(words_of(relation, [(8, 8)]), marks(FLAG | DEAD_NOW), np.ones(1, np.int64))
    relation.add(words_of(relation, [(9, 9)]), marks(1), np.ones(1, np.int64))
    relation.set_marks(words_of(relation, [(8, 8)]), marks(1))
    assert shown(relation, Version.NEW) == [*ROWS, (8, 8), (9, 9)]


def test_what_came_and_went_is_in_no_version() -> None:
    relation = relation_with(ROWS)
    row = words_of(relation, [(9, 9)])
    relation.add(row, None, np.ones(1, np.int64))
    relation.set_marks(row, marks(DEAD_NOW))
    assert all(shown(relation, version) == ROWS for version in Version)
    assert relation.find(row, DEAD - 1).marks.tolist() == [GONE]
    relation.add(words_of(relation, [(8, 8)]), None, np.ones(1, np.int64))
    relation.set_marks(row, marks(1))  # it can come back,
    assert (9, 9) in shown(relation, Version.NEW)
    relation.set_marks(row, marks(DEAD_NOW))
    relation.add(row, marks(2), np.full(1, 7))  # or be added again
    found = relation.find(row)
    assert (found.marks[0], found.counts[0]) == (2, 7)
    relation.set_marks(row, marks(DEAD_NOW))
    relation.commit()
    relation.check()
    assert all(shown(relation, version) == [*ROWS, (8, 8)] for version in Version)


def test_a_row_is_not_added_twice() -> None:
    relation = relation_with(ROWS)
    row = words_of(relation, [(9, 9)])
    relation.add(row, marks(1), np.ones(1, np.int64))
    with pytest.raises(AssertionError, match="added twice"):
        relation.add(row, marks(1), np.ones(1, np.int64))


def test_nothing_is_flagged_at_the_end() -> None:
    relation = relation_with(ROWS)
    relation.set_marks(words_of(relation, ROWS[:1]), marks(FLAG | 1))
    with pytest.raises(AssertionError, match="still flagged"):
        relation.commit()


def test_the_given_arrays_may_be_used_on() -> None:
    relation = relation_with([])
    given_marks, given_counts = marks(1, 2), np.array([1, 2**40])
    rows = words_of(relation, [(1, 1), (2, 2)])
    relation.add(rows, given_marks, given_counts)
    relation.set_marks(rows, marks(3, 3))
    relation.set_counts(relation.find(rows), np.array([5, 5]))
    assert given_marks.tolist() == [1, 2]
    assert given_counts.tolist() == [1, 2**40]


@pytest.mark.parametrize("raw", [False, True])
def test_a_run_is_apart_from_the_buffer_it_comes_from(raw: bool) -> None:
    relation = relation_with([], raw=raw)
    words = words_of(relation, ROWS)
    buffer = np.zeros((words.shape[0], 100), np.int64)
    buffer[:, : len(ROWS)] = words
    every_other = np.zeros(2 * len(ROWS), np.int32)
    relation.replace(buffer[:, : len(ROWS)], every_other[::2], np.ones(len(ROWS), np.int64))
    buffer[:] = 0
    relation.check()
    assert shown(relation, Version.NEW) == ROWS
    part = words[:, ::3]  # and looking up takes any array
    assert relation.find(part).present.all()


def test_the_dead_give_their_memory_back() -> None:
    rows = [(a, b) for a in range(100) for b in range(100)]
    relation = relation_with(rows)
    relation.index(SWAPPED)
    full = relation.nbytes
    relation.set_marks(words_of(relation, rows[:9000]), np.full(9000, DEAD_NOW, np.int32))
    relation.commit()
    assert relation.nbytes * 9 < full
    for order in relation.indexes.values():
        for run in order.runs:
            assert run.words.base is None or run.words.base.size == run.words.size


def test_many_small_epochs_leave_few_runs() -> None:
    relation = relation_with([])
    relation.index(SWAPPED)
    for i in range(100):
        for j in range(0, 100, 10):
            rows = words_of(relation, [(i, j + k) for k in range(10)])
            relation.add(rows, None, np.ones(10, np.int64))
            relation.commit()
            assert all(len(order.runs) < MOST_RUNS for order in relation.indexes.values())
    relation.check()
    assert len(relation) == 10_000


def test_runs_far_apart_in_size_are_few_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SMALL", 1)
    relation = relation_with([])
    rows = iter([(a, b) for a in range(100) for b in range(100)])
    for size in (6000, 600, 60, 6, 1, 1, 50, 6, 1):
        words = words_of(relation, islice(rows, size))
        relation.add(words, None, np.ones(size, np.int64))
        relation.commit()
        assert len(relation.primary.runs) < MOST_RUNS
    relation.check()


def test_merging_takes_both_counted_or_none() -> None:
    a, b = np.array([[1]]), np.array([[2]])
    with pytest.raises(AssertionError, match="counted"):
        merge(Run(a, None, np.ones(1, np.int32)), Run(b))


def test_counts_grow_beyond_32_bits_and_come_back() -> None:
    relation = relation_with(ROWS)
    rows = words_of(relation, ROWS)
    relation.set_counts(relation.find(rows), np.full(len(ROWS), 2**31))
    assert set(relation.find(rows).counts.tolist()) == {2**31}
    relation.abort()
    assert set(relation.find(rows).counts.tolist()) == {1}
    assert compact_counts(np.array([2**31 - 1])).dtype == np.int32
    assert compact_counts(np.array([2**31])).dtype == np.int64
    assert compact_counts(np.zeros(0, np.int64)).dtype == np.int32


def test_merged_counts_of_different_widths() -> None:
    relation = relation_with(ROWS)
    relation.add(words_of(relation, [(9, 9)]), None, np.array([2**40]))
    relation.commit()
    found = relation.find(words_of(relation, [*ROWS, (9, 9)]))
    assert found.counts.tolist() == [1] * len(ROWS) + [2**40]


def test_a_new_order_needs_a_current_layout() -> None:
    relation = relation_with(ROWS)
    relation.domains[0].widen(-5, 10**6)
    with pytest.raises(AssertionError, match="out of date"):
        relation.index(SWAPPED)
    relation.relayout()
    relation.index(SWAPPED)
    relation.check()
    assert shown(relation, Version.NEW) == ROWS
