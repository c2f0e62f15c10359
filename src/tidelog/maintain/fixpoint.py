"""Semi-naive evaluation that counts derivations: how a recursive layer is bootstrapped.

Each round joins the rules from the rows that the last round found. A row that is first found in
round l has level l, and its count is the number of rule instantiations that derive it in that
round. Given rows have level 0 and count 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.join.bodies import BodyJoins
from tidelog.join.gather import Sums, Tally, distinct
from tidelog.join.joins import AtomReading, Reader, reading
from tidelog.kernel import rows as kernel
from tidelog.kernel.marks import ALIVE
from tidelog.plan.body import AtomUse
from tidelog.runtime.workers import Workers
from tidelog.store.catalog import Catalog
from tidelog.store.merging import merge
from tidelog.store.relation import StoredRelation
from tidelog.store.run import NO_MARKS, Run, Words, descriptors_of
from tidelog.store.sorting import sort_words
from tidelog.store.versions import Version

_ROUNDS_OUT_OF_USE = 3  # after which an order is dropped
_MOST_OLDER = 4  # runs of earlier rounds
# During the rounds, level and count of a row are one number, and stored as its count. Other orders
# than the primary one have neither; updates build them again.
_COUNT_BITS = 40
_COUNT_MASK = (1 << _COUNT_BITS) - 1
_BITMAP_BITS = 28  # 32 MB
_MANY = 1 << 16  # rows: several workers sort them
_WORD = 64  # rows of a word of a bitmap
_PIECES = 2  # that each of them sorts
_VERY_LARGE = 1 << 25
_GROWTH = 2


class Fixpoint:
    """Fills the relations of a layer, level by level."""

    def __init__(
        self, catalog: Catalog, joins: Sequence[BodyJoins], into: Mapping[str, StoredRelation]
    ) -> None:
        self._catalog = catalog
        self._joins = joins
        self._into = into
        self._fresh: dict[str, bool] = {}
        """Whether the last run of a relation has the rows that the last round found."""
        self._level = 0
        self._sizes: list[int] = []
        self._seen: dict[str, NDArray[np.int64] | None] = {}
        self._last_use: dict[tuple[str, tuple[int, ...]], int] = {}

    def run(self) -> int:
        """Fill the relations; return the number of levels."""
        with self._catalog.workers.active():
            return self._run()

    def _run(self) -> int:
        for name, relation in self._into.items():
            rows = self._catalog.given[name].rows(Version.NEW)
            relation.replace_runs([Run(rows.copy(), None, np.ones(rows.shape[1], np.int64))])
            self._fresh[name] = rows.shape[1] > 0
            self._seen[name] = _bitmap(relation)
            self._see(name, rows)
        while self._level == 0 or any(self._fresh.values()):
            self._level += 1
            sizes = [relation.stored.bit_length() for relation in self._into.values()]
            if sizes != self._sizes:  # plans may change with them
                self._sizes, self._catalog.stamp = sizes, object()
            self._round()
            self._catalog.meter.reached(self._level, sum(r.stored for r in self._into.values()))
        for relation in self._into.values():
            runs, relation.primary.runs = relation.primary.runs, []
            relation.replace_runs(_finished(runs, self._catalog.workers))
        return self._level

    def _see(self, name: str, rows: Words) -> None:
        seen = self._seen[name]
        if seen is None:
            return
        workers, n = self._catalog.workers, rows.shape[1]
        pieces = workers.count if n >= _MANY else 1
        if pieces == 1:
            kernel.see(rows, seen)
            return
        # Workers must not write to the same word: a piece begins with the first row of one.
        firsts = [int(rows[0, n * i // pieces]) // _WORD * _WORD for i in range(1, pieces)]
        cuts = [0, *np.searchsorted(rows[0], firsts).tolist(), n]

        def see(cut: tuple[int, int], is_stopped: Callable[[], bool]) -> None:
            kernel.see(rows[:, cut[0] : cut[1]], seen)

        workers.map(see, list(itertools.pairwise(cuts)))

    def _round(self) -> None:
        found = {name: Tally(relation.words) for name, relation in self._into.items()}
        for joins in self._joins:
            for driver in self._drivers(joins):
                newest = self._newest(joins, driver)
                joins.add_to(found, driver, self._reader(driver), newest, self._new_rows)
        for name, relation in self._into.items():
            self._drop_orders(name, relation)
            if self._seen[name] is None or self._is_read(name):
                _merge_older(relation)
            tally = found[name]
            self._see(name, tally.rows)
            self._fresh[name] = len(tally) > 0
            if len(tally):
                leveled = tally.sums
                assert leveled.max() < 1 << _COUNT_BITS, f"more than 2**{_COUNT_BITS} derivations"
                leveled += self._level << _COUNT_BITS
                relation.append_run(tally.rows, leveled)

    def _new_rows(self, name: str, found: Words) -> tuple[Words, Sums]:
        """Return the distinct rows that no earlier round has found. Workers call it at once."""
        rows, sums = distinct(found)
        n = rows.shape[1]
        seen = self._seen[name]
        if seen is not None:
            n = kernel.remove_seen(rows, sums, n, seen)
        else:
            for run in self._into[name].primary.runs:
                n = kernel.remove_present(rows, sums, n, run.words, NO_MARKS, False, 0)
        return np.ascontiguousarray(rows[:, :n]), sums[:n]

    def _is_read(self, name: str) -> bool:
        """Return whether joins have read older rows of the relation in this round."""
        return any(r == name and at == self._level for (r, _), at in self._last_use.items())

    def _drivers(self, joins: BodyJoins) -> Iterator[int | None]:
        """Yield the atoms to start from: None in the first round, later those with new rows."""
        if self._level == 1:
            yield None
            return
        for place, atom in joins.rule.positive:
            if self._fresh.get(atom.relation):
                yield place

    def _newest(self, joins: BodyJoins, driver: int | None) -> list[Run] | None:
        if driver is None:
            return None
        return [Run(self._into[joins.rule.atoms[driver].relation].primary.runs[-1].words)]

    def _reader(self, driver: int | None) -> Reader:
        """Atoms before the driver read only older rows, so each instantiation is found once."""

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> AtomReading:
            relation = self._into.get(atom.relation)
            if relation is None:
                index = self._catalog.relations[atom.relation].index(order)
                return reading(index, Version.NEW)
            index = relation.index(order)
            self._last_use[atom.relation, order] = self._level
            if len(index.runs) > _MOST_OLDER + 1:
                newest = index.runs.pop()
                _merge_runs(index.runs)
                index.runs.append(newest)
            runs = index.runs
            if driver is not None and place < driver and self._fresh[atom.relation]:
                runs = runs[:-1]
            return AtomReading(runs, descriptors_of(runs), ALIVE)

        return read

    def _drop_orders(self, name: str, relation: StoredRelation) -> None:
        """Drop orders that are no longer used.

        The first round reads all rows. Later rounds start from the newest rows, and need other
        orders. Plans also change with the sizes of relations.
        """
        if len(relation.indexes) == 1:
            return
        oldest = self._level - _ROUNDS_OUT_OF_USE
        recent = {o for (r, o), last in self._last_use.items() if r == name and last > oldest}
        relation.drop_orders(recent if self._level > 1 else ())


def _bitmap(relation: StoredRelation) -> NDArray[np.int64] | None:
    """Return an array with a bit for each possible row, unless there are too many.

    It is the fastest way to find rows.
    """
    bits = sum(domain.bits for domain in relation.domains)
    if relation.words > 1 or bits > _BITMAP_BITS:
        return None
    return np.zeros(max(1, (1 << bits) // 64), np.int64)


def _finished(runs: list[Run], workers: Workers) -> list[Run]:
    """Return the runs as one, with levels and counts apart; empties `runs`.

    Very large runs are not merged: two copies of all rows would take too much memory.
    """
    if len(runs) > _MOST_OLDER:
        packed = _sorted_at_once(runs, workers)
        if packed is not None:
            return [packed]
    while len(runs) > 1 and (len(runs) > _MOST_OLDER or sum(map(len, runs)) < _VERY_LARGE):
        runs.sort(key=len)
        runs[:2] = [merge(runs[0], runs[1])]
    finished = []
    while runs:
        finished.append(_split(runs.pop()))
    return sorted(finished, key=len, reverse=True)


def _split(run: Run) -> Run:
    """Return the run with its levels and counts apart."""
    leveled = run.counts
    assert leveled is not None
    marks, counts = np.empty(len(run), np.int32), np.empty(len(run), np.int32)
    if kernel.split_levels(leveled, _COUNT_BITS, marks, counts):
        return Run(run.words, marks, counts)
    return Run(run.words, marks, leveled & _COUNT_MASK)


def _sorted_at_once(runs: Sequence[Run], workers: Workers) -> Run | None:
    """Return all rows in one run, by sorting, if row, level and count fit one word.

    Each worker sorts the rows between two of them.
    """
    if runs[0].words.shape[0] > 1:
        return None
    largest = np.zeros(3, np.int64)
    for run in runs:
        kernel.largest_parts(run.words, run.counts, _COUNT_BITS, largest)
    word_bits, level_bits, count_bits = (int(part).bit_length() for part in largest)
    if word_bits + level_bits + count_bits > 63 or level_bits > 29 or count_bits > 31:
        return None
    n = sum(map(len, runs))
    packed, marks, counts = np.empty((1, n), np.int64), np.empty(n, np.int32), np.empty(n, np.int32)
    sample = max(runs, key=len).words[0]
    pieces = _PIECES * workers.count if n >= _MANY and workers.count > 1 else 1
    keys = [sample[len(sample) * i // pieces] for i in range(1, pieces)]
    cuts = [[0, *np.searchsorted(run.words[0], keys).tolist(), len(run)] for run in runs]
    starts = np.sum(cuts, axis=0).tolist()

    def sort_piece(number: int, is_stopped: Callable[[], bool]) -> None:
        start, stop = starts[number], starts[number + 1]
        at = start
        for run, cut in zip(runs, cuts, strict=True):
            first, last = cut[number], cut[number + 1]
            assert run.counts is not None
            kernel.pack_levels(
                run.words[:, first:last], run.counts[first:last], _COUNT_BITS, level_bits,
                count_bits, packed[0], at,
            )  # fmt: skip
            at += last - first
        piece = packed[:, start:stop]
        ordered = sort_words(piece)
        if ordered is not piece:
            piece[:] = ordered
        kernel.unpack_levels(
            piece[0], level_bits, count_bits, marks[start:stop], counts[start:stop]
        )

    workers.map(sort_piece, range(pieces))
    return Run(packed, marks, counts)


def _merge_older(relation: StoredRelation) -> None:
    """Merge the runs of earlier rounds, in all orders."""
    for index in relation.indexes.values():
        _merge_runs(index.runs)


def _merge_runs(runs: list[Run]) -> None:
    """Merge runs so that few are left, each much smaller than the one before.

    A join searches every run, so there must not be many. But some recursions find a few rows in
    each of ten thousand rounds, and must not copy many more each time.
    """
    while len(runs) > 1 and (len(runs) > _MOST_OLDER or len(runs[-1]) * _GROWTH > len(runs[-2])):
        last = runs.pop()
        runs[-1] = merge(runs[-1], last)
