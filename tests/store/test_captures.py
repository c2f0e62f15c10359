"""What persistence asks of a stored relation: capture, release, install and compact."""

import numpy as np
import pytest

from tidelog.store.domain import Domain
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run
from tidelog.store.sorting import sort_words
from tidelog.store.versions import Version

SWAPPED = (1, 0)


def relation() -> StoredRelation:
    """Return a relation of pairs in two orders, after three epochs."""
    made = StoredRelation("pairs", [Domain(), Domain()])
    for domain in made.domains:
        domain.widen(0, 100)
    made.relayout()
    made.index(SWAPPED)
    for start in (0, 30, 60):
        made.add(words(made, range(start, start + 30)), None, None)
        made.commit()
    return made


def words(of: StoredRelation, numbers: range) -> np.ndarray:
    column = np.array(numbers, np.int64)
    return sort_words(of.pack_ordinals(np.stack([column, 90 - column])))


def captured_rows(of: StoredRelation, runs: list) -> set[tuple[int, ...]]:
    """Return the rows that a capture of the primary order has, as they were."""
    found: set[tuple[int, ...]] = set()
    for run in runs:
        n = run.words.shape[1]
        marks = np.zeros(n) if run.marks is None else run.marks.part(0, n)
        found |= set(map(tuple, of.ordinals(run.words[:, marks == 0]).T.tolist()))
    return found


def rows(of: StoredRelation) -> set[tuple[int, ...]]:
    return set(map(tuple, of.ordinals(of.rows(Version.NEW)).T.tolist()))


def test_a_capture_stays_as_it_was() -> None:
    held = relation()
    before = rows(held)
    capture = held.capture()
    for start in (0, 40):
        held.remove(words(held, range(start, start + 9)))
        held.commit()
    assert len(rows(held)) == len(before) - 18
    primary, swapped = capture.orders.values()
    assert captured_rows(held, primary) == before
    assert sum(run.words.shape[1] for run in swapped) == len(before)
    held.check()


def test_a_released_capture_is_not_told_of_changes() -> None:
    held = relation()
    before = rows(held)
    capture = held.capture()
    held.release()
    held.remove(words(held, range(9)))
    held.commit()
    assert captured_rows(held, capture.orders[0, 1]) == before - {(i, 90 - i) for i in range(9)}


def test_installed_runs_are_the_relation() -> None:
    held = relation()
    capture = held.capture()
    held.release()
    other = StoredRelation("again", held.domains)
    runs = {order: [Run(run.words) for run in runs] for order, runs in capture.orders.items()}
    other.install(runs)
    assert list(other.indexes) == list(held.indexes)
    assert rows(other) == rows(held)
    other.check()
    other.remove(words(other, range(5)))
    other.commit()
    assert len(rows(other)) == len(rows(held)) - 5
    other.check()


@pytest.mark.parametrize("deleted", [range(0), range(7), range(90)])
def test_compact_leaves_one_run_without_dead_rows(deleted: range) -> None:
    held = relation()
    held.remove(words(held, deleted))
    held.commit()
    wanted = rows(held)
    held.compact()
    assert rows(held) == wanted
    assert all(len(index.runs) == (1 if wanted else 0) for index in held.indexes.values())
    assert not any(run.dead for run in held.runs())
    held.check()
    held.add(words(held, range(95, 97)), None, None)
    held.commit()
    assert len(rows(held)) == len(wanted) + 2
