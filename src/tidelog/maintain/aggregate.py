"""Aggregates: the groups that a change touches are computed again.

The result has one row for each group of the source. A change of the source names the groups that it
touches; their rows are read through the order that starts with the group's columns, and aggregated.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import EvaluationError
from tidelog.kernel import join as k
from tidelog.kernel.program import BATCH, JoinProgram, Output
from tidelog.maintain.calls import Calls
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.joins import DomainOverflow, reading
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE
from tidelog.plan.body import AtomUse
from tidelog.plan.lowered import Aggregation
from tidelog.plan.steps import Plan, Scan, Seek, Step
from tidelog.store.domain import RAW_BITS, Domain
from tidelog.store.layout import Layout
from tidelog.store.relation import Delta, Version, without
from tidelog.store.run import Run, Words

Array = NDArray[np.int64]


class GroupLookup:
    """Reads the rows of a relation that belong to given groups."""

    def __init__(self, catalog: Catalog, relation: str, group: tuple[int, ...]) -> None:
        self._catalog = catalog
        self._relation = catalog.relations[relation]
        self._name = relation
        self._group = group
        self._compiled: dict[object, JoinProgram] = {}

    def read(self, groups: Array, version: Version) -> tuple[Array, Array]:
        """Return (number of the group, columns of ordinals) of all rows of the groups."""
        program = self._program()
        numbered = np.vstack([np.arange(groups.shape[1]), groups])
        batch = Run(np.ascontiguousarray(numbered))
        index = self._relation.index(program.plan.orders[1])
        reads = reading(index, version)
        arity = len(self._relation.domains)
        program.read(0, batch.table(), batch, 0)
        if not batch or not program.read(1, reads.table, reads.runs, reads.limit):
            return np.empty(0, np.int64), np.empty((arity, 0), np.int64)
        out = self._catalog.buffer(program.out_height)
        try:
            chunks = [out[:, :n].copy() for n in program.run(out)]
        finally:
            self._catalog.give_back(out)
        found = np.concatenate(chunks, axis=1)
        self._catalog.meter.found(found.shape[1])
        biases = np.array([domain.bias for domain in self._relation.domains], np.int64)
        return found[0], found[1 : 1 + arity] + biases[:, None]

    def prepare(self) -> None:
        """Build the order that is read."""
        self._relation.index(self._program().plan.orders[1])

    def _program(self) -> JoinProgram:
        key = tuple(domain.version for domain in self._relation.domains)
        program = self._compiled.get(key)
        if program is None:
            program = self._compiled[key] = self._compile()
        return program

    def _compile(self) -> JoinProgram:
        arity = len(self._relation.domains)
        slots = tuple(f"c{i}" for i in range(arity))
        batch = AtomUse(BATCH, ("%row", *(slots[c] for c in self._group)))
        source = AtomUse(self._name, slots)
        rest = tuple(c for c in range(arity) if c not in self._group)
        steps: list[Step] = [Scan(0, tuple(range(len(batch.args))))]
        if self._group:
            steps.append(Seek(1, self._group))
        if rest:
            steps.append(Scan(1, rest))
        orders = (tuple(range(len(batch.args))), (*self._group, *rest))
        plan = Plan((batch, source), 0, tuple(steps), orders, 0.0)
        raw = Domain()
        raw.bits = RAW_BITS
        layouts = [
            Layout(orders[0], [raw] * len(batch.args)),
            Layout(orders[1], self._relation.domains),
        ]
        domains = dict(zip(slots, self._relation.domains, strict=True))
        places = tuple((slot, i, 0, -1) for i, slot in enumerate(("%row", *slots)))
        return JoinProgram(plan, layouts, domains, {}, {}, Output(1 + arity, places), k.PLAIN)


class Aggregate:
    """Keeps the result of one aggregate."""

    name = "aggregate"
    why = "the groups that change are computed again"
    """How it is kept, in words for `explain`."""
    algebra = ""
    """The class of the aggregates that are kept so, in words; nothing if they have none."""
    state = ""
    """What is kept of a group beside the rows of the source, in words."""
    reads_source = True
    """Whether the rows of a group are looked up in the source when it changes."""

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether this class can keep an aggregate."""
        raise NotImplementedError

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        self._catalog = catalog
        self._aggregation = aggregation
        self._source = catalog.relations[aggregation.source]
        self._result = catalog.relations[aggregation.result]
        self._rows_of = GroupLookup(catalog, aggregation.source, aggregation.group)
        wanted = aggregation.wanted
        self._wanted = None if wanted is None else catalog.relations[wanted]
        width = len(aggregation.group)
        self._held = GroupLookup(catalog, aggregation.result, tuple(range(width)))
        if aggregation.algebra is not None:
            types = catalog.types(aggregation.source)
            self._calls = Calls(aggregation, types, catalog.codec)
        self.choice = NOTHING

    @classmethod
    def in_words(cls) -> str:
        """Return how aggregates are kept, for `explain`.

        >>> Aggregate.in_words()
        'aggregate: the groups that change are computed again'
        """
        return f"{cls.name} ({cls.algebra}): {cls.state}" if cls.state else f"{cls.name}: {cls.why}"

    def bootstrap(self) -> None:
        """Aggregate every group."""
        codes = self._source.unpack(self._source.rows(Version.NEW))
        groups = self._distinct_groups(codes)
        rows = self._catalog.pack(self._aggregation.result, self._compute(groups))
        self._result.replace(rows, None, np.ones(rows.shape[1], np.int64))
        self.choice = BOOTSTRAP

    def prepare(self) -> None:
        """Make ready for small updates."""
        self._rows_of.prepare()
        self._held.prepare()

    def update(self) -> None:
        """Aggregate the groups that the source's change touches again."""
        groups = self._touched_groups()
        self.choice = UPDATE if groups.shape[1] else NOTHING
        if not groups.shape[1]:
            return
        after = self._catalog.pack(self._aggregation.result, self._compute(groups))
        _, held = self._held.read(groups, Version.NEW)
        before = self._catalog.pack(self._aggregation.result, held)
        inserted, deleted = without(after, before), without(before, after)
        relation = self._result
        relation.set_marks(deleted, np.full(deleted.shape[1], k.DEAD_NOW, np.int32))
        relation.add(inserted, None, np.ones(inserted.shape[1], np.int64))
        relation.delta = Delta(inserted, deleted)

    def read(self, relation: str, version: Version) -> Words:
        """Return the rows of one of the relations, sorted."""
        return self._catalog.relations[relation].rows(version)

    def check(self) -> None:
        """Assert that the result is that of the source."""
        groups = self._distinct_groups(self._source.unpack(self._source.rows(Version.NEW)))
        rows = self._catalog.pack(self._aggregation.result, self._compute(groups))
        assert np.array_equal(rows, self._result.rows()), f"{self._aggregation.result} is stale"

    def memory(self) -> Mapping[str, float]:
        """Return what is to be remembered: nothing."""
        return {}

    def remember(self, memory: Mapping[str, float]) -> None:
        """Take back nothing."""

    def restored(self) -> None:
        """Build what is not stored: nothing."""

    def _touched_groups(self) -> Array:
        """Return the groups to aggregate again: what the source's change touches.

        And those that are asked for from now on: a sum that overflows has had no value so far.
        """
        delta = self._source.delta
        changed = np.concatenate([delta.inserted, delta.deleted], axis=1)
        groups = self._distinct_groups(self._source.unpack(changed))
        if self._wanted is not None and self._wanted.delta.inserted.shape[1]:
            asked = self._source_codes(self._wanted.ordinals(self._wanted.delta.inserted))
            if not len(asked):
                asked = asked[:, :1]
            groups = np.concatenate([groups, asked], axis=1)
            groups = np.unique(groups, axis=1) if len(groups) else groups[:, :1]
        return groups

    def _source_codes(self, ordinals: Array) -> Array:
        """Return groups given by ordinals as codes of the source, without those that it lacks."""
        columns = self._aggregation.group
        if not columns:
            return np.empty((0, ordinals.shape[1]), np.int64)
        domains = [self._source.domains[column] for column in columns]
        fits = np.ones(ordinals.shape[1], np.bool_)
        for row, domain in zip(ordinals, domains, strict=True):
            if not domain.is_raw:
                fits &= (row >= domain.bias) & (row - domain.bias <= domain.mask)
        biases = np.array([domain.bias for domain in domains], np.int64)
        return ordinals[:, fits] - biases[:, None]

    def _is_wanted(self, group: Array) -> bool:
        """Return whether a group, given by codes of the source, is asked for."""
        if self._wanted is None:
            return True
        if not len(group):
            return len(self._wanted) > 0
        columns = self._aggregation.group
        ordinals = [
            int(code) + self._source.domains[column].bias
            for code, column in zip(group, columns, strict=True)
        ]
        codes = []
        for ordinal, domain in zip(ordinals, self._wanted.domains, strict=True):
            if not domain.covers(ordinal, ordinal):
                return False
            codes.append(ordinal - domain.bias)
        row = self._wanted.pack(np.array(codes, np.int64)[:, None])
        return bool(self._wanted.find(row).present[0])

    def _distinct_groups(self, codes: Array) -> Array:
        group = codes[list(self._aggregation.group)]
        if not len(group):
            return np.empty((0, min(1, codes.shape[1])), np.int64)
        return np.unique(group, axis=1)

    def _compute(self, groups: Array) -> Array:
        """Return the result rows of the groups, as ordinals; groups without rows have none."""
        number, columns = self._rows_of.read(groups, Version.NEW)
        if not len(number):
            return np.empty((len(groups) + 1, 0), np.int64)
        order = np.argsort(number, kind="stable")
        number, columns = number[order], columns[:, order]
        starts = np.flatnonzero(np.diff(number, prepend=-1))
        stops = np.append(starts[1:], len(number))
        aggregation = self._aggregation
        values = []
        kept = []
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            part = columns[:, start:stop]
            try:
                values.append(self._value(part))
                kept.append(start)
            except EvaluationError:
                # In a group that nobody asks for it is no error.
                if self._is_wanted(groups[:, number[start]]):
                    raise
        present = groups[:, number[kept]].copy()
        for row, column in enumerate(aggregation.group):
            present[row] += self._source.domains[column].bias
        result = np.vstack([present, np.array(values, np.int64).reshape(1, -1)])
        if result.shape[1]:
            domain = self._result.domains[-1]
            for extreme in (int(result[-1].min()), int(result[-1].max())):
                if not domain.covers(extreme, extreme):
                    raise DomainOverflow(domain, extreme)
        return result

    def _value(self, rows: Array) -> int:
        """Return the ordinal of the aggregate of a group's rows; there is at least one."""
        raise NotImplementedError
