"""A relation as dictionaries, to be compared with a stored one."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel.marks import ALIVE, DEAD, DEAD_NOW, FLAG, GONE
from tidelog.store import index as indexes
from tidelog.store.index import MOST_RUNS, Index
from tidelog.store.relation import StoredRelation
from tidelog.store.sorting import sort_words
from tidelog.store.versions import Version

Row = tuple[int, ...]
Words = NDArray[np.int64]


@dataclass
class Entry:
    """What is known of a row."""

    mark: int
    count: int


@dataclass
class Model:
    """The rows that are not dead: those of earlier epochs, and those of the current one."""

    runs: dict[Row, Entry] = field(default_factory=dict)
    tail: dict[Row, Entry] = field(default_factory=dict)

    def get(self, row: Row) -> Entry | None:
        """Return the entry of a row."""
        return self.runs.get(row) or self.tail.get(row)

    def shown(self, version: Version) -> set[Row]:
        """Return the rows of a version; what came and went in this epoch is in none."""
        rows = {row for row, entry in self.runs.items() if entry.mark <= version.limit}
        if version.with_tail:
            rows |= {row for row, entry in self.tail.items() if entry.mark <= ALIVE}
        return rows

    def copy(self) -> Model:
        """Return a copy that keeps its entries."""
        runs, tail = (
            {row: Entry(entry.mark, entry.count) for row, entry in side.items()}
            for side in (self.runs, self.tail)
        )
        return Model(runs, tail)


def words_of(relation: StoredRelation, rows: Iterable[Row]) -> Words:
    """Return rows of ordinals as sorted words; the domains must cover them."""
    listed = list(rows)
    codes = np.array(listed, np.int64).reshape(len(listed), len(relation.domains)).T.copy()
    for column, domain in enumerate(relation.domains):
        codes[column] -= domain.bias
    return sort_words(relation.pack(codes))


def rows_of(relation: StoredRelation, words: Words) -> list[Row]:
    """Return words as rows of ordinals."""
    return [tuple(row) for row in relation.ordinals(words).T.tolist()]


def shown_by(relation: StoredRelation, index: Index, version: Version) -> list[Row]:
    """Return what a reader of one order sees."""
    rows: list[Row] = []
    for run in index.all_runs() if version.with_tail else index.runs:
        words = run.words if run.marks is None else run.words[:, run.marks <= version.limit]
        rows += rows_of(relation, relation.primary.repacked(words.copy(), index.layout))
    return rows


def compare(relation: StoredRelation, model: Model) -> None:
    """Assert that the relation is what the model says, in every order and version."""
    relation.check()
    for version in Version:
        expected = sorted(model.shown(version))
        assert rows_of(relation, relation.rows(version)) == expected, version
        for index in relation.indexes.values():
            assert sorted(shown_by(relation, index, version)) == expected, version
    assert len(relation) == len(model.shown(Version.NEW))
    known = {**model.runs, **model.tail}
    rows = sorted(known)
    found = relation.find(words_of(relation, rows), DEAD - 1)
    assert found.present.all()
    assert found.marks.tolist() == [known[row].mark for row in rows]
    if relation.counted:
        assert found.counts.tolist() == [known[row].count for row in rows]


class Driver:
    """Changes a relation and its model alike, at random."""

    def __init__(
        self, rng: random.Random, relation: StoredRelation, values: list[list[int]]
    ) -> None:
        self.rng, self.relation, self.model = rng, relation, Model()
        self.values = values
        self.before = self.model.copy()

    # --- drawing ---

    def random_rows(self, most: int) -> set[Row]:
        """Return rows, whether known or not."""
        return {
            tuple(self.rng.choice(column) for column in self.values)
            for _ in range(self.rng.randint(0, most))
        }

    def some(self, rows: Iterable[Row]) -> list[Row]:
        """Return some of the rows, sorted: a few, or nearly all."""
        listed = sorted(rows)
        share = self.rng.choice([0.05, 0.3, 0.95])
        return [row for row in listed if self.rng.random() < share]

    def random_count(self) -> int:
        """Return a count, now and then one of more than 32 bits."""
        return self.rng.choice([1, 2, 3, 2**31 - 1] if self.rng.random() < 0.99 else [2**31, 2**40])

    def random_mark(self) -> int:
        """Return a mark that an epoch sets."""
        level = self.rng.randint(0, 3)
        return self.rng.choice([level, level, level, DEAD_NOW, DEAD_NOW, FLAG | level])

    # --- within an epoch ---

    def add(self) -> None:
        """Add rows that no version shows."""
        gone = [row for row, entry in self.model.tail.items() if entry.mark == GONE]
        new = {row for row in self.random_rows(40) if self.model.get(row) is None}
        rows = sorted(new | set(self.some(gone)))
        kind = self.rng.randrange(3)
        marks = [[0, self.rng.randint(0, 3), FLAG | DEAD_NOW][kind] for _ in rows]
        counts = [self.random_count() for _ in rows]
        self.relation.add(
            words_of(self.relation, rows),
            None if kind == 0 else np.array(marks, np.int32),
            np.array(counts, np.int64) if self.relation.counted else None,
        )
        for row, mark, count in zip(rows, marks, counts, strict=True):
            self.model.tail[row] = Entry(mark, count)

    def set_marks(self, marks: list[int] | None = None, rows: list[Row] | None = None) -> None:
        """Change marks of known rows; unknown ones among them are passed over."""
        if rows is None:
            chosen = {*self.some(self.model.runs), *self.some(self.model.tail)}
            rows = sorted(chosen | self.random_rows(3))
        if marks is None:
            one = self.random_mark()
            same = self.rng.random() < 0.5
            marks = [one if same else self.random_mark() for _ in rows]
        given = np.array(marks, np.int32)
        self.relation.set_marks(words_of(self.relation, rows), given)
        assert given.tolist() == marks
        for row, mark in zip(rows, marks, strict=True):
            if row in self.model.runs:
                self.model.runs[row].mark = mark
            elif row in self.model.tail:
                self.model.tail[row].mark = GONE if mark == DEAD_NOW else mark

    def set_counts(self) -> None:
        """Change counts of rows that are found."""
        if not self.relation.counted:
            return
        limit = self.rng.choice([ALIVE, DEAD_NOW, DEAD - 1])
        rows = sorted({*self.some(self.model.runs), *self.some(self.model.tail)})
        found = self.relation.find(words_of(self.relation, rows), limit)
        counts = [self.random_count() for _ in rows]
        self.relation.set_counts(found, np.array(counts, np.int64))
        for row, count, present in zip(rows, counts, found.present.tolist(), strict=True):
            entry = self.model.get(row)
            assert entry is not None
            assert present == (entry.mark <= limit)
            if present:
                entry.count = count

    def find(self) -> None:
        """Look for rows, known and unknown."""
        limit = self.rng.choice([0, 2, ALIVE, DEAD_NOW, DEAD - 1])
        rows = sorted({*self.some(self.model.runs), *self.random_rows(10)})
        found = self.relation.find(words_of(self.relation, rows), limit)
        marks, counts = found.marks, found.counts
        for i, row in enumerate(rows):
            entry = self.model.get(row)
            if entry is None or entry.mark > limit:
                assert found.run[i] == found.position[i] == -1
                assert marks[i] == counts[i] == 0
            else:
                assert found.run[i] >= 0 and found.position[i] >= 0
                assert marks[i] == entry.mark
                assert counts[i] == (entry.count if self.relation.counted else 0)

    def index(self) -> None:
        """Ask for a random order."""
        columns = range(len(self.values))
        order = tuple(self.rng.sample(columns, len(columns)))
        index = self.relation.index(order)
        assert index.layout.order == order
        assert self.relation.index(order) is index

    # --- the end of an epoch, and between epochs ---

    def commit(self) -> None:
        """End the epoch; nothing may be flagged then."""
        flagged = sorted(
            row
            for row, entry in {**self.model.runs, **self.model.tail}.items()
            if entry.mark >= FLAG
        )
        self.set_marks([self.rng.choice([0, 1, 2, DEAD_NOW]) for _ in flagged], flagged)
        touched = self.relation.touched  # else nothing is tidied up
        self.relation.commit()
        both = {**self.model.runs, **self.model.tail}
        self.model = Model({row: entry for row, entry in both.items() if entry.mark <= ALIVE})
        self.before = self.model.copy()
        for index in self.relation.indexes.values():
            assert index.tail is None
            if not touched:
                continue
            assert len(index.runs) < MOST_RUNS + bool(index.merges)
            for run in index.runs:
                dead = 0 if run.marks is None else int((run.marks == DEAD).sum())
                most = len(run) - 1 if len(run) <= indexes.SMALL else len(run) // 4
                buried = dead <= most or bool(index.merges)
                assert buried, f"the dead are not buried: {dead} of {len(run)} rows"

    def abort(self) -> None:
        """End the epoch as if it had never been."""
        self.relation.abort()
        self.model = self.before.copy()

    def widen(self) -> None:
        """Let a column hold new values."""
        column = self.rng.randrange(len(self.values))
        bits = self.rng.choice([3, 6, 12, 20, 31, 45, 62, 63])
        new = self.rng.randint(-(2**bits), 2**bits - 1)
        self.values[column].append(new)
        # Columns may share a domain.
        if self.relation.domains[column].widen(new, new):
            self.relation.relayout()

    def replace(self) -> None:
        """Put other rows in the place of all."""
        rows = sorted(self.random_rows(60))
        marks = [self.rng.randint(0, 3) for _ in rows]
        counts = [self.random_count() for _ in rows]
        self.relation.replace(
            words_of(self.relation, rows),
            np.array(marks, np.int32),
            np.array(counts, np.int64) if self.relation.counted else None,
        )
        self.model = Model({r: Entry(m, c) for r, m, c in zip(rows, marks, counts, strict=True)})
        self.before = self.model.copy()

    def replace_at_commit(self) -> None:
        """Put other rows in the place of all at the end of the epoch, or do not."""
        other = self.relation.empty_copy()
        inner = Driver(self.rng, other, self.values)
        inner.replace()
        if self.rng.random() < 0.5:
            inner.index()
        delta = self.relation.replace_at_commit(other)
        old, new = set(self.model.runs), set(inner.model.runs)
        assert rows_of(self.relation, delta.inserted) == sorted(new - old)
        assert rows_of(self.relation, delta.deleted) == sorted(old - new)
        self.relation.check()
        for version, expected in (
            (Version.OLD, old),
            (Version.NEW, new),
            (Version.KEPT, old & new),
            (Version.EITHER, old | new),
        ):
            assert set(rows_of(self.relation, self.relation.rows(version))) == expected
        if self.rng.random() < 0.5:
            self.abort()
        else:
            self.relation.commit()
            self.model = inner.model
            self.before = self.model.copy()
