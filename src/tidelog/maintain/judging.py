"""Failures that something may excuse: the relations that plan/failure_rules.py makes.

    p(g, s) :- q(g), n = count : { r(g, _) }, s = sum x : { t(g, x) }, n < 2.

    failed(g) :  the groups of t whose sum has no value
    error(g)  :- failed(g), q(g), count(g, n), n < 2.

As long as nothing has failed, these relations are empty. Then there is nothing to do, and there are
neither plans nor orders for them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tidelog.errors import EvaluationError
from tidelog.join.failures import Attempt, check_failures, match_atoms
from tidelog.join.joins import HEAD
from tidelog.join.rules import RuleJoins
from tidelog.kernel.join_layout import PLAIN
from tidelog.maintain.aggregate import Array
from tidelog.maintain.counting import Counting
from tidelog.maintain.epoch_program import EpochProgram
from tidelog.maintain.strategy import Deltas
from tidelog.plan.body import LoweredRule, OnFailure
from tidelog.plan.lowered import Layer
from tidelog.store.catalog import Catalog
from tidelog.store.run import Run, Words


class Judging(Counting):
    """Maintains a relation that has rows only where something has failed."""

    name = "judging"

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        super().__init__(catalog, layer)
        catalog.failures[self._head] = self.failure

    def prepare(self) -> None:
        """Prepare only the joins that look for failures: the others are hardly ever needed."""
        for joins in self._joins:
            if joins.rule.on_failure is OnFailure.DERIVE:
                for place in range(len(joins.rule.atoms)):
                    joins.prepare(place, PLAIN)

    def add_steps(self, program: EpochProgram) -> bool:
        """Add the joins that look for failures. While nothing has failed there is nothing else."""
        program.require_empty(self._relation)
        drives = []
        for joins in self._joins:
            causes = [a.relation for a in joins.rule.atoms if a.relation in self._catalog.failures]
            if causes:
                program.require_empty(self._catalog.relations[causes[0]])
                continue
            if joins.rule.on_failure is not OnFailure.DERIVE:
                return False
            found = self._drives(joins, None)
            if found is None:
                return False
            drives += found
        program.count(self._relation, self._given, drives)
        return True

    def _can_derive(self, joins: RuleJoins) -> bool:
        """Return whether each atom of the rule has rows, including those deleted in this epoch."""
        relations = self._catalog.relations
        return all(relations[atom.relation].stored for _, atom in joins.rule.positive)

    def failure(self, row: Array) -> EvaluationError:
        """Return the error that led to a row of this relation, given by its ordinals."""
        words = self._relation.pack_ordinals(row[:, None])
        for joins in self._joins:
            for error in self._causes(joins.rule, words):
                return error
        raise AssertionError(f"nothing has failed in {self._head}")

    def _causes(self, rule: LoweredRule, row: Words) -> Iterator[EvaluationError]:
        """Yield the failures with which a rule derives a row."""
        catalog, reader, rows = self._catalog, self._reader(None), [Run(row)]
        if rule.on_failure is OnFailure.DERIVE:
            try:
                check_failures(catalog, rule, HEAD, reader, rows)
            except EvaluationError as error:
                yield error
            return
        slots, bindings = match_atoms(catalog, rule, HEAD, reader, rows)
        attempt = Attempt(catalog, rule, reader)
        for binding in bindings.T.tolist():
            values = dict(zip(slots, binding, strict=True))
            if attempt.holds(values):
                cause = rule.atoms[0]  # the failure comes first
                found = [0 if slot is None else values.get(slot, 0) for slot in cause.args]
                yield catalog.failures[cause.relation](np.array(found, np.int64))


class Errors(Judging):
    """Raises the error of a failure that nothing excuses, so that the relation stays empty."""

    name = "errors"

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        super().__init__(catalog, layer)
        assert layer.errors_of is not None
        self._errors_of = layer.errors_of

    def bootstrap(self) -> None:
        """Check all failures."""
        super().bootstrap()
        self._raise_first(self._relation.rows())

    def update(self) -> Deltas:
        """Check new failures, and those that are no longer excused."""
        deltas = super().update()
        if self._head in deltas:
            self._raise_first(deltas[self._head].inserted)
        return deltas

    def _raise_first(self, rows: Words) -> None:
        if rows.shape[1]:
            failure = self._catalog.failures[self._errors_of]
            raise failure(self._relation.ordinals(rows[:, :1].copy())[:, 0])
