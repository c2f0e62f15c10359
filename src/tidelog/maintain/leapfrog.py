"""Non-recursive relations, maintained by the traces of their joins.

A delta join searches for what a changed row joins with, whether the result depends on it or not.
Here each rule has the trace of its join (join/trace.py): a change is looked up in the sensitivity
indexes, and the join is repeated only where its trace depends on the change. A change that the
trace does not depend on costs a few searches.

The relation itself is as with counting: a row's count is the number of its derivations, and a row
of the old version that is not in the new one takes one of them away. Rules whose trace cannot be
maintained are maintained by delta joins, in the same relation.

When not to use it: the indexes have a row for nearly every step of the join, and each change of the
trace writes to them. For a view whose changes are found quickly by a delta join, that is more work.
"""

from __future__ import annotations

import numpy as np

from tidelog.join.failures import check_failures
from tidelog.join.gather import Tally
from tidelog.join.trace import RuleTrace, TraceStatistics
from tidelog.kernel.join_layout import PLAIN
from tidelog.maintain.counting import Counting
from tidelog.maintain.epoch_program import EpochProgram
from tidelog.maintain.strategy import Choice
from tidelog.plan.lowered import Layer
from tidelog.plan.traces import NAME, untraceable
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run
from tidelog.store.versions import Version


class RuleTraces:
    """The traces of the rules of a relation; those of rules that have none are missing."""

    def __init__(self) -> None:
        self.by_rule: dict[int, RuleTrace] = {}

    @property
    def nbytes(self) -> int:
        """The memory of all indexes."""
        return sum(trace.nbytes for trace in self.by_rule.values())

    @property
    def reads(self) -> tuple[str, ...]:
        """The relations that the rules read."""
        return tuple(dict.fromkeys(r for trace in self.by_rule.values() for r in trace.reads))

    @property
    def intervals(self) -> int:
        """The number of intervals in all indexes."""
        return sum(len(index) for trace in self.by_rule.values() for index in trace.indexes)

    def commit(self, relation: StoredRelation) -> None:
        """Keep what the epoch has changed."""
        for trace in self.by_rule.values():
            for index in trace.indexes:
                index.commit()

    def abort(self) -> None:
        """Put everything back as it was before the epoch."""
        for trace in self.by_rule.values():
            for index in trace.indexes:
                index.abort()

    def check(self, relation: StoredRelation) -> None:
        """Assert that the indexes are sound. Those that are out of date are never read again."""
        for trace in self.by_rule.values():
            for index in trace.indexes if trace.is_current else ():
                index.check()


class Leapfrog(Counting):
    """Maintains one relation that does not depend on itself, by the traces of its joins."""

    name = NAME

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        super().__init__(catalog, layer)
        self._is_traced = [untraceable(rule) is None for rule in layer.rules]
        self.traces = RuleTraces()
        """What was recorded so far, by the number of the rule."""

    def bootstrap(self) -> None:
        """Compute the relation. Traces are recorded by `prepare`, or when they are needed."""
        self.traces = RuleTraces()
        super().bootstrap()

    def prepare(self) -> None:
        """Record the traces, and prepare the delta joins of the other rules."""
        for number, joins in enumerate(self._joins):
            if self._is_traced[number]:
                self._trace(number, Version.NEW)
            else:
                for place in range(len(joins.rule.atoms)):
                    joins.prepare(place, PLAIN)

    def add_steps(self, program: EpochProgram) -> bool:
        """Add a step, unless a rule has a trace, which only this strategy follows."""
        return not any(self._is_traced) and super().add_steps(program)

    def statistics_of_traces(self) -> TraceStatistics:
        """Return what the last epoch took, over all rules."""
        total = TraceStatistics()
        for trace in self.traces.by_rule.values():
            total.add(trace.statistics)
        return total

    def _trace(self, number: int, version: Version) -> RuleTrace:
        """Return the trace of a rule as a version has it; recorded if there is none."""
        trace = self.traces.by_rule.get(number)
        if trace is None or not trace.is_current:
            trace = self._record(number, version)
        self._relation.followers[RuleTraces] = self.traces
        return trace

    def _record(self, number: int, version: Version) -> RuleTrace:
        """Record the trace of a rule."""
        trace = RuleTrace(self._catalog, self._joins[number].rule)
        trace.record(version)
        self.traces.by_rule[number] = trace
        return trace

    def _add_change(self, number: int, tally: Tally) -> None:
        if not self._is_traced[number]:
            super()._add_change(number, tally)
            return
        rule = self._joins[number].rule
        changed = list(self._changed(rule))
        if not changed:
            found = self.traces.by_rule.get(number)
            if found is not None:
                found.statistics = TraceStatistics()
            return
        self._relation.touch()
        trace = self._trace(number, Version.OLD)
        rows, weights = trace.follow()
        self.choice = Choice("update", work=self.statistics_of_traces().in_words())
        for weight in (1, -1):
            tally.add(np.ascontiguousarray(rows[:, weights == weight]), weight)
        if trace.failed:
            after = self._reader(None)
            for place, driver, weight in changed:
                if weight > 0:
                    check_failures(self._catalog, rule, place, after, [Run(driver)])
