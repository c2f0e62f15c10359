"""Counts, sums and means: a change of the source is added to the values of its groups.

They form an Abelian group: what a row has added, its deletion takes away again.

    count' = count + |inserted| - |deleted|         sum' = sum + sum(inserted) - sum(deleted)

Both are kept exactly for every group (store/accumulators.py), beside the result rows, and the
result is computed from them: rounded once, if it is a float. So a change costs its own size,
however large the groups are, and the result does not depend on what was there before.

A sum of whole numbers that leaves the range of its type has no value. Where something may excuse
that, the group becomes a row of another relation, from which the errors are derived
(plan/failing.py); otherwise it is an error at once. The exact sum is kept in any case.

Several aggregates of the same rows and groups are kept together, by maintain/sibling_sums.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelog.errors import EvaluationError
from tidelog.maintain.aggregate import Aggregate, Array
from tidelog.maintain.catalog import Catalog
from tidelog.maintain.joins import DomainOverflow
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE
from tidelog.plan.lowered import Aggregation
from tidelog.store.accumulators import Accumulators
from tidelog.store.operations import Operation
from tidelog.store.run import Words
from tidelog.store.versions import Delta, Version
from tidelog.values.types import Kind


class Sums(Aggregate):
    """Keeps the counts, sums or means of the groups of a relation."""

    name = "sums"
    why = "the change is added to the values of its groups"
    algebra = "Abelian group"
    state = "one sum and support count a group"

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether an aggregate is a count of rows, a sum or a mean."""
        is_sum = aggregation.target is None or aggregation.op in ("sum", "mean", "total")
        return is_sum and not aggregation.parts

    def __init__(self, catalog: Catalog, aggregation: Aggregation) -> None:
        super().__init__(catalog, aggregation)
        self._key = np.array(aggregation.group, np.int64)
        self._own_key = np.arange(len(aggregation.group))
        self._sums = self._new_sums()
        parts = self._sums_of_parts()
        self._result.attached.extend(dict.fromkeys(sums for _, sums in parts))
        self._domains = self._result.domains[len(aggregation.group) :]
        self._limited = [pair for pair in parts if operation_of(pair[0]).may_overflow]
        # The view that copies them has the rows. What was there before is known from the sums.
        self._stores_rows = not catalog.is_only_copied(aggregation.result)
        if not self._stores_rows:
            catalog.passed_on.append(self._result)

    def bootstrap(self) -> None:
        """Add up every group."""
        self._sums.clear()
        _, rows = self._add(self._source.ordinals(self._source.rows(Version.NEW)), None)
        if self._failed is not None:
            gone, come = self._sums.failed()
            self._keep_failed(come, gone, first=True)
        self._sums.commit()
        words = self._catalog.pack(self._aggregation.result, rows)
        self._result.replace(words, None, np.ones(words.shape[1], np.int64))
        self.choice = BOOTSTRAP

    def restored(self) -> None:
        """Add up the groups once more, if files hold only their results: an older version's."""
        if self._sums.is_kept:
            return
        self._sums.clear()
        columns = self._source.ordinals(self._source.rows(Version.NEW))
        self._add_to(self._sums, columns, columns.shape[1])
        self._sums.commit()

    def prepare(self) -> None:
        """Make ready for small updates: nothing but the sums is read."""

    def update(self) -> None:
        """Add the change of the source to its groups."""
        delta = self._source.delta
        self.choice = UPDATE if delta else NOTHING
        if delta:
            relation = self._result
            relation.touched = True
            deleted, inserted = self._changed(delta)
            if self._stores_rows:
                relation.change(inserted, deleted)
            else:
                relation.delta = Delta(inserted, deleted)
            failed = self._failed
            if failed is not None and (failed.stored or self._some_beyond()):
                gone, come = self._sums.failed()
                self._keep_failed(come, gone)

    def check(self) -> None:
        """Assert that sums and result are those of the source."""
        self._sums._check()
        fresh = self._new_sums()
        columns = self._source.ordinals(self._source.rows(Version.NEW))
        _, come = self._add_to(fresh, columns, columns.shape[1])
        if self._failed is not None:
            expected = set(map(tuple, fresh.failed()[1].T.tolist()))
            found = self._failed.ordinals(self._failed.rows())
            kept = found if self._catalog.types(self._failed.name) else found[:0]
            assert set(map(tuple, kept.T.tolist())) == expected, "other groups have no value"
        assert fresh.contents() == self._sums.contents(), "the sums are not those of the rows"
        rows = self._catalog.pack(self._aggregation.result, come)
        if not self._stores_rows:
            rows = self._result.no_rows()
        assert np.array_equal(rows, self._result.rows()), f"{self._aggregation.result} is stale"

    def _changed(self, delta: Delta) -> tuple[Words, Words]:
        """Add a change of the source to its groups; return the result rows that go and come."""
        added = delta.inserted.shape[1]
        if added + delta.deleted.shape[1] == 1 and not self._aggregation.parts:
            return self._changed_by_row(delta.inserted if added else delta.deleted, added)
        if added and delta.deleted.shape[1]:
            changed = np.concatenate([delta.inserted, delta.deleted], axis=1)
        else:
            changed = delta.inserted if added else delta.deleted
        gone, come = self._add(self._source.ordinals(changed), added)
        return self._packed(gone), self._packed(come)

    def _changed_by_row(self, row: Words, added: int) -> tuple[Words, Words]:
        """Do what `_changed` does for one row, the usual case."""
        relation, fields = self._result, self._source.primary.layout.biased
        layout, none = relation.primary.layout, relation.no_rows()
        shape = (layout.words, 1)
        gone, come = np.empty(shape, np.int64), np.empty(shape, np.int64)
        went, came, is_beyond, fits = self._sums.change_by_row(
            row, fields, self._key, self._aggregation.target, added, layout.biased, gone, come
        )
        if is_beyond:
            self._refuse_overflow()
        if not fits:
            value = self._sums.value(self._source.ordinals(row), self._key)
            raise DomainOverflow(self._domains[0], value)
        return gone if went else none, come if came else none

    def _packed(self, ordinals: Array) -> Words:
        """Return result rows in their layout, sorted."""
        relation, n = self._result, ordinals.shape[1]
        if n == 1:
            return relation.pack_ordinals(ordinals)
        return self._catalog.pack(relation.name, ordinals) if n else relation.no_rows()

    # --- adding up ---

    def _new_sums(self) -> Any:
        """Return what keeps the sums of the groups, without any."""
        return Accumulators(len(self._own_key), operation_of(self._aggregation))

    def _sums_of_parts(self) -> list[tuple[Aggregation, Accumulators]]:
        """Return each aggregate, with the sums it is computed from."""
        return [(self._aggregation, self._sums)]

    def _add_to(self, sums: Any, columns: Array, added: int) -> tuple[Array, Array]:
        """Add rows to the groups; return the result rows that go and those that come."""
        found: tuple[Array, Array] = sums.add(columns, self._key, self._aggregation.target, added)
        return found

    def _add(self, columns: Array, inserted: int | None) -> tuple[Array, Array]:
        """Add rows to their groups, those behind `inserted` are taken away.

        Returns the result rows that go and those that come, as ordinals.
        """
        added = columns.shape[1] if inserted is None else inserted
        gone, come = self._add_to(self._sums, columns, added)
        self._refuse_overflow()
        if come.shape[1]:
            values = come[len(self._own_key) :]
            extremes = (
                [values] if values.shape[1] == 1 else [values.min(axis=1), values.max(axis=1)]
            )
            for extreme in extremes:
                for value, domain in zip(extreme.ravel().tolist(), self._domains, strict=True):
                    if not domain.covers(value, value):
                        raise DomainOverflow(domain, value)
        return gone, come

    def _refuse_overflow(self) -> None:
        """Raise an error if a group of this epoch has no value, and nothing could excuse that."""
        if self._failed is None:
            for part, sums in self._limited:
                if sums.some_beyond:
                    raise self._overflow(sums.touched_overflowing()[:, 0], part, sums)

    def _some_beyond(self) -> bool:
        """Return whether this epoch has touched a group that has no value now."""
        return any(sums.some_beyond for _, sums in self._limited)

    def failure(self, row: Array) -> EvaluationError:
        """Return the error that a group has no value."""
        group, flags = np.split(row, [len(self._own_key)])
        number = int(np.argmax(flags)) if len(self._limited) > 1 else 0
        return self._overflow(group, *self._limited[number])

    def _overflow(
        self, group: Array, aggregation: Aggregation, sums: Accumulators
    ) -> EvaluationError:
        rows = int(sums.support(group[: len(self._own_key), None], self._own_key)[0])
        decoder, types = self._catalog.codec.decoder, self._catalog.types(aggregation.result)
        values = {
            name: decoder(type_)(ordinal)
            for name, type_, ordinal in zip(
                aggregation.variables, types, group.tolist(), strict=False
            )
            if not name.startswith("$")
        }
        reason = f"the sum of {rows} values overflows `{aggregation.target_type}`"
        return EvaluationError(reason, aggregation.text, aggregation.span, values)


def operation_of(aggregation: Aggregation) -> Operation:
    """Return what is computed from the sum of a group."""
    type_ = aggregation.target_type
    if aggregation.target is None or type_ is None:
        return Operation.count()
    is_unsigned = type_.kind is Kind.UNSIGNED
    if aggregation.op == "sum" and type_.kind is not Kind.FLOAT:
        most = 10**type_.precision if type_.kind is Kind.DECIMAL else 0
        return Operation.whole_sum(unsigned=is_unsigned, most=most)
    return Operation.float_sum(
        of_floats=type_.kind is Kind.FLOAT,
        mean=aggregation.op == "mean",
        unsigned=is_unsigned,
        scale=10**type_.scale if type_.kind is Kind.DECIMAL else 1,
    )
