"""Counts, sums and means: a change of the source is added to the values of its groups.

They form an Abelian group: a deletion subtracts what an insertion has added.

    count' = count + |inserted| - |deleted|         sum' = sum + sum(inserted) - sum(deleted)

Both are stored exactly for every group (store/accumulators.py), beside the result rows. The result
is computed from them, and rounded once if it is a float. So the cost of a change is proportional to
its size, not to that of its groups, and the result does not depend on the history.

A sum of whole numbers outside the range of its type has no value. If something may excuse that, the
group becomes a row of another relation, from which errors are derived (plan/failure_rules.py).
Otherwise it is an error at once. The exact sum is stored in any case.

`Siblings` maintains several aggregates of the same rows and groups together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tidelog.errors import EvaluationError
from tidelog.maintain.aggregate import Aggregate, Array
from tidelog.maintain.epoch_program import EpochProgram
from tidelog.maintain.strategy import BOOTSTRAP, NOTHING, UPDATE, Deltas
from tidelog.plan.lowered import Aggregation
from tidelog.store.accumulators import Accumulators, Operation
from tidelog.store.catalog import Catalog
from tidelog.store.run import Words
from tidelog.store.sibling_sums import SiblingSums, SummedColumn
from tidelog.store.versions import Delta, Version
from tidelog.values.types import Kind


class Sums(Aggregate):
    """Maintains the counts, sums or means of the groups of a relation."""

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
        # If a view only copies the result, only the view stores the rows. Old rows come from the
        # sums.
        self._stores_rows = not catalog.is_only_copied(aggregation.result)
        if not self._stores_rows:
            catalog.passed_on.append(self._result)

    def bootstrap(self) -> None:
        """Add up every group."""
        self._sums.clear()
        _, rows = self._fill(self._sums)
        self._accept(rows)
        if self._failed is not None:
            self._replace_failed(self._sums.failed()[1])
        self._sums.commit()
        words = self._catalog.pack(self._aggregation.result, rows)
        self._result.replace(words, None, np.ones(words.shape[1], np.int64))
        self.choice = BOOTSTRAP

    def restored(self) -> None:
        """Add up the groups again if the files are from an older release and have only results."""
        if self._sums.is_kept:
            return
        self._sums.clear()
        self._fill(self._sums)
        self._sums.commit()

    def update(self) -> Deltas:
        """Add the change of the source to its groups."""
        is_changed = self._is_changed()
        self.choice = UPDATE if is_changed else NOTHING
        if not is_changed:
            return {}
        relation, failed = self._result, self._failed
        relation.touch()
        deleted, inserted = self._changed()
        if self._stores_rows:
            change = relation.change(inserted, deleted)
        else:
            change = Delta(inserted, deleted)
        if failed is not None and (failed.stored or self._some_overflow()):
            deleted, inserted = self._sums.failed()
            return {relation.name: change, failed.name: self._change_failed(inserted, deleted)}
        return {relation.name: change}

    def add_steps(self, program: EpochProgram) -> bool:
        """Add a step that adds changed rows to their groups."""
        if self._aggregation.ranged is not None:
            return False
        if self._failed is not None:
            program.require_empty(self._failed)
        program.add_up(self._source, self._result, self._key, self._summed())
        return True

    def _summed(self) -> Sequence[SummedColumn]:
        """Return the columns that are added up, and what comes from them."""
        operation = operation_of(self._aggregation)
        return (SummedColumn.single(self._sums, self._aggregation.target, operation),)

    def check(self) -> None:
        """Assert that sums and result are those of the source."""
        self._sums.check()
        fresh = self._new_sums()
        _, inserted = self._fill(fresh)
        if self._failed is not None:
            expected = set(map(tuple, fresh.failed()[1].T.tolist()))
            found = self._failed.ordinals(self._failed.rows())
            kept = found if self._catalog.types(self._failed.name) else found[:0]
            assert set(map(tuple, kept.T.tolist())) == expected, "other groups have no value"
        assert fresh.contents() == self._sums.contents(), "the sums are not those of the rows"
        rows = self._catalog.pack(self._aggregation.result, inserted)
        if not self._stores_rows:
            rows = self._result.no_rows()
        assert np.array_equal(rows, self._result.rows()), f"{self._aggregation.result} is stale"

    def _fill(self, sums: Any) -> tuple[Array, Array]:
        """Add all rows of the source to empty sums; return what `_add_to` does."""
        rows = self._catalog.rows_of(self._aggregation.source, Version.NEW)
        columns = self._source.ordinals(rows)
        return self._add_to(sums, columns, columns.shape[1])

    def _is_changed(self) -> bool:
        """Return whether there is anything to add or subtract."""
        return bool(self._source.delta)

    def _changed(self) -> tuple[Words, Words]:
        """Add the delta of the source to its groups; return the rows to delete and to insert."""
        delta = self._source.delta
        added = delta.inserted.shape[1]
        if added and delta.deleted.shape[1]:
            changed = np.concatenate([delta.inserted, delta.deleted], axis=1)
        else:
            changed = delta.inserted if added else delta.deleted
        deleted, inserted = self._add_to(self._sums, self._source.ordinals(changed), added)
        self._accept(inserted)
        return self._packed(deleted), self._packed(inserted)

    def _packed(self, ordinals: Array) -> Words:
        """Return result rows in their layout, sorted."""
        relation, n = self._result, ordinals.shape[1]
        if n == 1:
            return relation.pack_ordinals(ordinals)
        return self._catalog.pack(relation.name, ordinals) if n else relation.no_rows()

    # --- adding up ---

    def _new_sums(self) -> Any:
        """Return empty sums."""
        return Accumulators(len(self._own_key), operation_of(self._aggregation))

    def _sums_of_parts(self) -> list[tuple[Aggregation, Accumulators]]:
        """Return each aggregate, with the sums it is computed from."""
        return [(self._aggregation, self._sums)]

    def _add_to(self, sums: Any, columns: Array, added: int) -> tuple[Array, Array]:
        """Add rows to the groups; return the result rows to delete and those to insert."""
        found: tuple[Array, Array] = sums.add(columns, self._key, self._aggregation.target, added)
        return found

    def _accept(self, inserted: Array) -> None:
        """Check result rows: that no sum overflows, and that their domains cover them."""
        self._refuse_overflow()
        if inserted.shape[1]:
            for values, domain in zip(inserted[len(self._own_key) :], self._domains, strict=True):
                domain.require(values)

    def _refuse_overflow(self) -> None:
        """Raise an error if a group of this epoch has no value and nothing could excuse that."""
        if self._failed is None:
            for part, sums in self._limited:
                if sums.some_overflow:
                    raise self._overflow(sums.touched_overflowing()[:, 0], part, sums)

    def _some_overflow(self) -> bool:
        """Return whether a group that this epoch has touched has no value now."""
        return any(sums.some_overflow for _, sums in self._limited)

    def failure(self, row: Array) -> EvaluationError:
        """Return the error of a group without a value."""
        flags = row[-len(self._limited) :]
        number = int(np.argmax(flags)) if len(self._limited) > 1 else 0
        return self._overflow(row, *self._limited[number])

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


class Siblings(Sums):
    """Maintains several counts, sums and means of the same rows, by the same groups.

        result(g, n, s, m)  :  n = count, s = sum x, m = mean x   over the rows of g

    The results of a group are one row, which changes when any of them changes (plan/siblings.py).
    So there is one relation and no join. If the rule only copies it, only the view stores the rows.
    """

    state = "one support count a group for all, and one sum for each column"

    @classmethod
    def takes(cls, aggregation: Aggregation) -> bool:
        """Return whether these are several aggregates."""
        return bool(aggregation.parts)

    def _new_sums(self) -> SiblingSums:
        parts = self._aggregation.parts
        return SiblingSums(
            len(self._own_key), [(operation_of(part), part.target) for part in parts]
        )

    def _summed(self) -> Sequence[SummedColumn]:
        found: Sequence[SummedColumn] = self._sums.columns
        return found

    def _sums_of_parts(self) -> list[tuple[Aggregation, Accumulators]]:
        return list(zip(self._aggregation.parts, self._sums.of_parts, strict=True))

    def _add_to(self, sums: SiblingSums, columns: Array, added: int) -> tuple[Array, Array]:
        return sums.add(columns, self._key, added)


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
