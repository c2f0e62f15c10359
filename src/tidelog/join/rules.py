"""The joins of one rule, each planned and compiled when it is first needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from tidelog.join.failures import check_failures, failing_heads
from tidelog.join.gather import Sums, Tally, distinct, united
from tidelog.join.joins import LARGE_CHANGE, Instances, JoinPart, Reader, RuleJoin
from tidelog.join.program import Overflowed
from tidelog.join.spreading import Columns, spread_columns
from tidelog.kernel.join_layout import COUNT, PLAIN, RANGES
from tidelog.plan.body import AtomUse, LoweredRule, OnFailure
from tidelog.plan.matching import shape
from tidelog.store.catalog import Catalog
from tidelog.store.run import Run, Words

Take: TypeAlias = "Callable[[Words], tuple[Words, Sums]]"
"""Makes distinct rows with weights of what a join has found; it may overwrite that."""

_SMALL_CHANGE = 64
_LARGE = 1 << 14  # rows to start from: workers join them
_PARTS = 2  # of a large join, for each worker


class RuleJoins:
    """All ways to join a rule."""

    def __init__(self, catalog: Catalog, rule: LoweredRule, heads: Sequence[AtomUse] = ()) -> None:
        """Join a rule; with several `heads`, it writes their rows below each other."""
        self.rule = rule
        self._heads = heads or (rule.head,)
        self._catalog = catalog
        self._joins: dict[object, RuleJoin] = {}
        self._current: dict[object, tuple[object, RuleJoin]] = {}

    def run(
        self,
        driver: int | None,
        mode: int,
        reader: Reader,
        rows: Sequence[Run] | None,
        settle_level: int = 0,
        after: Reader | None = None,
        *,
        is_bounded: bool = True,
        begins_small: bool = False,
    ) -> Iterator[Instances]:
        """Join the rule from the rows of one of its atoms (or of its head, or from nothing).

        Delta joins read a mixture of versions, in which a computation can fail that is excused in
        both of them. So failures are checked against what `after` reads, the version after the
        epoch. Without `after` they are not checked: deleted rows cannot cause new failures.
        What a rule derives where it fails is read as any row, from the mixture.

        If the join is not `is_bounded`, comparisons are tested on all rows. If it `begins_small`,
        the first results come as soon as there are some.
        """
        on_failure = self.rule.on_failure
        size = 0 if rows is None else sum(len(run) for run in rows)
        join = self._join(driver, mode, size, is_bounded=is_bounded)
        for instances in join.run(reader, rows, settle_level, begins_small=begins_small):
            self._catalog.meter.found(instances.rows.shape[1])
            if on_failure is not OnFailure.DERIVE:
                yield instances
        if join.failed and on_failure is OnFailure.DERIVE:
            yield Instances(self._failing(driver, reader, rows), None)
        elif join.failed and on_failure is OnFailure.RAISE and after is not None:
            check_failures(self._catalog, self.rule, driver, after, rows)

    def add_to(
        self,
        tally: Tally,
        driver: int | None,
        reader: Reader,
        rows: Sequence[Run] | None,
        *,
        take: Take = distinct,
        after: Reader | None = None,
    ) -> None:
        """Join the rule as `run` does, and add what `take` makes of its head rows to a tally.

        Large joins are cut into parts, and run by all workers of the catalog.
        """
        if self.is_large(driver, rows) and self.rule.on_failure is not OnFailure.DERIVE:
            size = 0 if rows is None else sum(len(run) for run in rows)
            join = self._join(driver, PLAIN, size)
            count = _PARTS * self._catalog.workers.count
            parts = join.in_parts(reader, rows, count)
            if parts is not None:
                self._run_parts(join, parts, take, tally)
                if join.failed and self.rule.on_failure is OnFailure.RAISE and after is not None:
                    check_failures(self._catalog, self.rule, driver, after, rows)
                return
        for instances in self.run(driver, PLAIN, reader, rows, after=after):
            tally.merge(*take(instances.rows))

    def is_large(self, driver: int | None, rows: Sequence[Run] | None) -> bool:
        """Return whether workers share the join from these rows."""
        if self._catalog.workers.count == 1:
            return False
        if rows is not None:
            return sum(len(run) for run in rows) >= _LARGE
        atoms = (atom.relation for _, atom in self.rule.positive)
        return any(self._catalog.relations[name].stored >= _LARGE for name in atoms)

    def _run_parts(
        self, join: RuleJoin, parts: Sequence[JoinPart], take: Take, tally: Tally
    ) -> None:
        """Run the parts of a join, and add their rows to a tally."""
        catalog = self._catalog
        workers, meter = catalog.workers, catalog.meter
        words = catalog.relations[self.rule.head.relation].words

        def run(part: JoinPart, is_stopped: Callable[[], bool]) -> Tally:
            found = Tally(words)
            with workers.lock:
                out = catalog.buffer(part.program.out_height)
            try:
                join.begin(part)
                done = False
                while not done and not is_stopped():
                    n, done = part.program.advance(out)
                    with workers.lock:
                        meter.found(n)
                    if n:
                        found.merge(*take(np.ascontiguousarray(out[:words, :n])))
            except Overflowed as error:
                raise join.overflow(error) from None
            finally:
                with workers.lock:
                    catalog.give_back(out)
            return found

        try:
            tallies = workers.map(run, parts)
        finally:
            join.close(parts)
        tallies = [found for found in tallies if len(found)]
        if tallies:
            total = united(tallies, workers)
            tally.merge(total.rows, total.sums)

    def writes_sorted_rows(self, driver: int, size: int, *, is_bounded: bool = True) -> bool:
        """Return whether the join from an atom writes rows in the order of the head.

        That holds if atoms are read from one run each, and the rows to start from are sorted.
        """
        joins = {self._join(driver, PLAIN, n, is_bounded=is_bounded) for n in (1, size)}
        return all(join.writes_sorted_rows for join in joins)

    def count(self, reader: Reader) -> int | None:
        """Return the number of instantiations; None if that takes an enumeration."""
        if self.rule.on_failure is not OnFailure.RAISE:
            return None
        return self._join(None, COUNT, 0).count(reader)

    def spread(self, reader: Reader, rows_at_once: int) -> Iterator[Columns] | None:
        """Return the instantiations as columns, in no order; None if they have to be enumerated."""
        if self.rule.on_failure is not OnFailure.RAISE:
            return None
        join = self._join(None, RANGES, 0)
        return spread_columns(join, reader, rows_at_once) if len(join.stages) == 1 else None

    def _failing(self, driver: int | None, reader: Reader, rows: Sequence[Run] | None) -> Words:
        """Return what the rule derives where conditions fail."""
        ordinals = failing_heads(self._catalog, self.rule, driver, reader, rows)
        head = self._catalog.relations[self.rule.head.relation]
        for column, domain in zip(ordinals, head.domains, strict=True):
            domain.require(column)
        return head.pack_ordinals(ordinals)

    def prepare(self, driver: int, mode: int) -> None:
        """Plan the join for a small change, and build the orders that it reads.

        Does nothing if all relations are small: then the first change can build them in time.
        """
        relations = self._catalog.relations
        if all(relations[atom.relation].stored < LARGE_CHANGE for atom in self.rule.atoms):
            return
        self._join(driver, mode, _SMALL_CHANGE).prepare()

    def small(self, driver: int, mode: int) -> RuleJoin:
        """Return the join for a small change."""
        return self._join(driver, mode, _SMALL_CHANGE)

    def _join(
        self, driver: int | None, mode: int, size: int, *, is_bounded: bool = True
    ) -> RuleJoin:
        """Return the join for about `size` rows: plans depend on sizes, in steps of 16."""
        if driver is not None and size < LARGE_CHANGE:
            size = _SMALL_CHANGE  # one plan for all small changes
        # Most calls are within one epoch: a join stays valid as long as no relation has grown much
        # and no domain has been widened.
        shortcut = (driver, mode, _step(size), is_bounded)
        stamp = self._catalog.stamp
        found = self._current.get(shortcut)
        if found is not None and found[0] is stamp:
            return found[1]
        sizes = tuple(
            _step(self._catalog.relations[atom.relation].stored) for atom in self.rule.atoms
        )
        generations = tuple(
            domain.generation
            for atom in (*self._heads, *self.rule.atoms)
            for domain in self._catalog.domains(atom.relation)
        )
        key = (*shortcut, sizes, generations)
        join = self._joins.get(key)
        if join is None:
            join = self._joins[key] = RuleJoin(
                self._catalog, self.rule, driver, mode, size, is_bounded=is_bounded,
                heads=self._heads,
            )  # fmt: skip
        self._current[shortcut] = (stamp, join)
        return join


def reused_joins(joins: Iterable[RuleJoins], others: Iterable[RuleJoins]) -> list[RuleJoins]:
    """Return the joins of rules; those of the same rules among others in their place."""
    known = {shape(other.rule): other for other in others}
    return [known.get(shape(own.rule), own) for own in joins]


def _step(size: int) -> int:
    return size.bit_length() // 4
