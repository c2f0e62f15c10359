"""Semi-naive evaluation that counts: how a recursive stratum is bootstrapped.

Round after round, rules are joined from the rows that the last round found. A row found for the
first time in round l has level l, and its count is the number of rule instantiations that derive it
in that round. Given rows are at level 0 and count once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tidelog.kernel import join as k
from tidelog.kernel import rows as kernel
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.gather import Tally, distinct
from tidelog.maintain.joins import Reader, Reading, reading
from tidelog.maintain.rules import RuleJoins
from tidelog.plan.body import AtomUse
from tidelog.store.merging import merge
from tidelog.store.relation import StoredRelation, Version
from tidelog.store.run import ALIVE, Run, compact_counts, table_of

_ROUNDS_OUT_OF_USE = 3
_MOST_OLDER = 4
_LARGE = 1 << 16


class Fixpoint:
    """Fills the relations of a stratum, level by level."""

    def __init__(
        self, catalog: Catalog, joins: Sequence[RuleJoins], into: Mapping[str, StoredRelation]
    ) -> None:
        self._catalog = catalog
        self._joins = joins
        self._into = into
        self._fresh: dict[str, bool] = {}
        """Whether the last run of a relation is what the last round found."""
        self._level = 0
        self._sizes: list[int] = []
        self._last_use: dict[tuple[str, tuple[int, ...]], int] = {}

    def run(self) -> int:
        """Fill the relations; return the number of levels."""
        for name, relation in self._into.items():
            rows = self._catalog.given[name].rows(Version.NEW)
            ones = np.ones(rows.shape[1], np.int32)
            relation.replace_runs([Run(rows.copy(), np.zeros(rows.shape[1], np.int32), ones)])
            self._fresh[name] = rows.shape[1] > 0
        while self._level == 0 or any(self._fresh.values()):
            self._level += 1
            sizes = [relation.stored.bit_length() for relation in self._into.values()]
            if sizes != self._sizes:  # plans may change with them
                self._sizes, self._catalog.stamp = sizes, object()
            self._round()
            self._catalog.meter.reached(self._level, sum(r.stored for r in self._into.values()))
        return self._level

    def _round(self) -> None:
        found = {name: Tally(relation.words) for name, relation in self._into.items()}
        for joins in self._joins:
            head = joins.rule.head.relation
            for driver in self._drivers(joins):
                newest = self._newest(joins, driver)
                reader = self._reader(driver)
                for instances in joins.run(driver, k.PLAIN, reader, newest, after=reader):
                    rows, sums = distinct(instances.rows)
                    n = rows.shape[1]
                    for run in self._into[head].primary.runs:
                        n = kernel.remove_present(
                            rows, sums, n, run.words, run.need_marks(), False, 0
                        )
                    found[head].merge(np.ascontiguousarray(rows[:, :n]), sums[:n])
        for name, relation in self._into.items():
            self._drop_orders(name, relation)
            _merge_older(relation)
            tally = found[name]
            self._fresh[name] = len(tally) > 0
            if len(tally):
                relation.append_run(tally.rows, self._level, compact_counts(tally.sums))

    def _drivers(self, joins: RuleJoins) -> Iterator[int | None]:
        """Yield the atoms to start from: none in the first round, then those with new rows."""
        if self._level == 1:
            yield None
            return
        for place, atom in joins.rule.positive:
            if self._fresh.get(atom.relation):
                yield place

    def _newest(self, joins: RuleJoins, driver: int | None) -> list[Run] | None:
        if driver is None:
            return None
        return [Run(self._into[joins.rule.atoms[driver].relation].primary.runs[-1].words)]

    def _reader(self, driver: int | None) -> Reader:
        """Count an instantiation by its first atom with a newest row: before it, older rows."""

        def read(place: int, atom: AtomUse, order: tuple[int, ...]) -> Reading:
            relation = self._into.get(atom.relation)
            if relation is None:
                index = self._catalog.relations[atom.relation].index(order)
                return reading(index, Version.NEW)
            self._last_use[atom.relation, order] = self._level
            runs = relation.index(order).runs
            if driver is not None and place < driver and self._fresh[atom.relation]:
                runs = runs[:-1]
            return Reading(runs, table_of(runs), ALIVE, ignores_marks=True)

        return read

    def _drop_orders(self, name: str, relation: StoredRelation) -> None:
        """Drop orders out of use.

        The first round reads all facts in ways that later rounds, which follow the newest rows, do
        not; and as sizes change, plans do.
        """
        if len(relation.indexes) == 1:
            return
        oldest = self._level - _ROUNDS_OUT_OF_USE
        recent = {o for (r, o), last in self._last_use.items() if r == name and last > oldest}
        relation.drop_orders(recent if self._level > 1 else ())


def _merge_older(relation: StoredRelation) -> None:
    """Merge the runs of earlier rounds so that few are left, each much smaller than the one before.

    A join looks into every run, so large ones are merged early; but some recursions find a handful
    of rows in each of ten thousand rounds, and cannot afford to copy more than that each time.
    """
    for index in relation.indexes.values():
        runs = index.runs
        while len(runs) > 1 and (
            len(runs) > _MOST_OLDER
            or len(runs[-1]) * 4 > len(runs[-2])
            or (len(runs) > 2 and len(runs[-2]) > _LARGE)
        ):
            last = runs.pop()
            runs[-1] = merge(runs[-1], last)
