"""Rules with the same body, and different heads, are joined once.

    a(x), b(x, y) :- p(x, z), q(z, y).

is two rules. A join of their body writes the rows of both heads. Each instantiation counts for each
head, as if the rules were joined one by one. So this is for evaluations from scratch, which take as
much time as their joins; the updates of elastic recursion know nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from tidelog.join.gather import Sums, Tally
from tidelog.join.joins import Reader
from tidelog.join.rules import RuleJoins
from tidelog.kernel.join_layout import PLAIN
from tidelog.plan.body import Assign, Condition, FunctorCall, LoweredRule, OnFailure, is_external
from tidelog.store.catalog import Catalog
from tidelog.store.run import Run, Words

TakeFor = Callable[[str, Words], tuple[Words, Sums]]
"""Makes distinct rows of a relation, with weights, of what a join has found."""


class BodyJoins:
    """The joins of rules that have one body."""

    def __init__(self, catalog: Catalog, joins: Sequence[RuleJoins]) -> None:
        self.rule = joins[0].rule
        """One of the rules: all have its atoms."""
        self._catalog = catalog
        self._joins = joins
        heads = [each.rule.head for each in joins]
        self.heads = [head.relation for head in heads]
        """Their heads, one for each rule."""
        self._all = joins[0] if len(joins) == 1 else RuleJoins(catalog, self.rule, heads)

    def add_to(
        self,
        tallies: Mapping[str, Tally],
        driver: int | None,
        reader: Reader,
        rows: Sequence[Run] | None,
        take: TakeFor,
    ) -> None:
        """Join from the rows of an atom; add what `take` makes of the rows of each head."""
        if len(self._joins) == 1 or self._all.is_large(driver, rows):
            for each in self._joins:
                head = each.rule.head.relation
                own = partial(take, head)
                each.add_to(tallies[head], driver, reader, rows, take=own, after=reader)
            return
        relations = self._catalog.relations
        for instances in self._all.run(driver, PLAIN, reader, rows, after=reader):
            first = 0
            for head in self.heads:
                words = relations[head].words
                found = np.ascontiguousarray(instances.rows[first : first + words])
                tallies[head].merge(*take(head, found))
                first += words


def by_body(catalog: Catalog, joins: Sequence[RuleJoins]) -> list[BodyJoins]:
    """Return the joins of rules, those with the same body together."""
    together: list[list[RuleJoins]] = []
    for each in joins:
        for others in together:
            if _have_one_body(each.rule, others[0].rule):
                others.append(each)
                break
        else:
            together.append([each])
    return [BodyJoins(catalog, same) for same in together]


def _have_one_body(one: LoweredRule, other: LoweredRule) -> bool:
    """Return whether two rules can be joined at once: nothing in their body can fail."""
    return (
        one.atoms == other.atoms
        and one.conditions == other.conditions
        and one.constants == other.constants
        and one.on_failure is other.on_failure is OnFailure.RAISE
        and not any(map(_is_special, one.conditions))
    )


def _is_special(condition: Condition) -> bool:
    if isinstance(condition, Assign) and isinstance(condition.value, FunctorCall):
        return condition.value.fallible or is_external(condition)
    return is_external(condition)
