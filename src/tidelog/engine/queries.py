"""Queries: rule bodies that are answered by demand (plan/demand.py).

Relations that are stored are read by their orders; the others are computed as far as the question
needs them. Plans are kept, so that a question that was asked before costs what its rows cost.
Questions that differ only in constants have one plan.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.protocol import Answer
from tidelog.engine.stored_reads import StoredReader
from tidelog.errors import EvaluationError
from tidelog.logic.program import Program, Relation
from tidelog.logic.query import ANSWERS, Query, QueryChecker
from tidelog.maintain.tables import Tables
from tidelog.plan.demand import Definition, definitions, judged_failures
from tidelog.plan.question import LoweredQuestion, given_name, lowered_question, selection
from tidelog.store.catalog import Catalog
from tidelog.store.domain import Domain, DomainOverflow
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Words
from tidelog.store.versions import Version
from tidelog.values.types import Row

_MOST_TEXTS = 512
_MOST_PLANS = 128

T = TypeVar("T")


class Recent(Generic[T]):
    """The items that were used last, by key."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: OrderedDict[str, T] = OrderedDict()

    def get(self, key: str, make: Callable[[], T]) -> T:
        """Return the item of a key, made if it is not here."""
        found = self._items.get(key)
        if found is None:
            found = self._items[key] = make()
            if len(self._items) > self._most:
                self._items.popitem(last=False)
        else:
            self._items.move_to_end(key)
        return found


@dataclass(frozen=True)
class _Plan:
    """How questions of one shape are answered."""

    tables: Tables
    errors: Mapping[str, str]
    """For each relation of errors: that of the failures which they are."""

    def raise_error(self) -> None:
        """Raise the error of a failure that nothing excuses, if there is one."""
        for name, failed in self.errors.items():
            relation = self.tables.relation(name)
            rows = relation.rows()
            if rows.shape[1]:
                raise self._error(name, failed, relation.ordinals(rows[:, :1].copy())[:, 0])

    def _error(self, name: str, failed: str, row: NDArray[np.int64]) -> EvaluationError:
        for relation, failure in self.tables.catalog.failures.items():
            if relation.startswith(f"{failed}?"):
                return failure(row)
        rule = self.tables.rules_of(name)[0]
        reason = "a computation fails, and no other condition is false"
        return EvaluationError(reason, rule.text, rule.span, {})


class Queries:
    """Answers queries about the relations of one catalog."""

    def __init__(
        self, program: Program, catalog: Catalog, is_stored: Callable[[str], bool]
    ) -> None:
        self._program, self._catalog = program, catalog
        self._checker = QueryChecker(program)
        self._defined: Mapping[str, Definition] = definitions(catalog.lowered, is_stored)
        self._judged = judged_failures(catalog.lowered)
        self._texts = Recent[tuple[Query, LoweredQuestion, str]](_MOST_TEXTS)
        self._plans = Recent[_Plan](_MOST_PLANS)

    def ask(self, text: str) -> Answer:
        """Return the answers of a query; raise ProgramError for mistakes in it."""
        query, question, shape = self._texts.get(text, lambda: self._lowered(text))
        answers = self._answers(shape, lambda: question, question.values)
        return Answer(query.shown, StoredReader(self._catalog.codec, answers, query.shown))

    def select(self, relation: Relation, values: Mapping[int, Any]) -> StoredReader:
        """Return the rows of a relation that have these values, by the number of the column."""
        bound = tuple(values)
        types = self._catalog.types(relation.name)
        answers = self._answers(
            f"{relation.name} {bound}",
            lambda: selection(relation.name, types, bound),
            [tuple(values.values())],
        )
        return StoredReader(self._catalog.codec, answers, relation)

    def _answers(
        self, shape: str, question: Callable[[], LoweredQuestion], values: Sequence[Row]
    ) -> StoredRelation:
        """Return the answers to a question about some constants.

        They are a relation that stays as it is. `shape` is what questions with one plan have in
        common.
        """
        while True:
            plan = self._plans.get(shape, lambda: self._planned(question()))
            tables = plan.tables
            try:
                tables.begin()
                tables.ask(
                    {given_name(i): self._given(tables, i, row) for i, row in enumerate(values)}
                )
                plan.raise_error()
                return _copied(tables.relation(ANSWERS))
            except DomainOverflow as overflow:
                overflow.domain.widen(overflow.ordinal, overflow.ordinal)
                self._catalog.relayout()
            finally:
                tables.clear()

    def _lowered(self, text: str) -> tuple[Query, LoweredQuestion, str]:
        query = self._checker.check(text)
        question = lowered_question(query, self._program, self._domain)
        return query, question, question.shape

    def _domain(self, relation: str, column: int) -> Domain:
        return self._catalog.domains(relation)[column]

    def _planned(self, question: LoweredQuestion) -> _Plan:
        catalog = self._catalog
        program, errors = question.program(
            self._defined, catalog.types, catalog.stats, self._judged
        )
        return _Plan(Tables(catalog, program, Version.NEW), errors)

    def _given(self, tables: Tables, place: int, values: Row) -> Words:
        """Return the constants of a rule as a row of its relation."""
        name = given_name(place)
        return tables.catalog.pack(name, tables.catalog.encode(name, [values]))


def _copied(answers: StoredRelation) -> StoredRelation:
    """Return rows in domains of their own: those of a database widen."""
    ordinals = answers.ordinals(answers.rows())
    domains = [Domain() for _ in answers.domains]
    if ordinals.shape[1]:
        for domain, low, high in zip(
            domains, np.min(ordinals, axis=1).tolist(), np.max(ordinals, axis=1).tolist(),
            strict=True,
        ):  # fmt: skip
            domain.widen(low, high)
    copied = StoredRelation(answers.name, domains)
    copied.replace(copied.pack_ordinals(ordinals), None, None)
    return copied
