"""Non-recursive relations for which the clock decides: delta joins, or the trace of a join.

Whether a trace pays depends on which changes come, so it is measured. A rule starts with delta
joins. Epochs in which they take long and find little count as waste: a trace would have known that
the result does not depend on the change. When the waste has cost several times as much as
evaluating the relation, the trace is recorded, and its epochs are timed as well. If they do not
take clearly less time, the rule goes back to delta joins. So a wrong choice costs a fraction of
what was spent already.

Short epochs run in one call, and are timed as a whole. After some that may be waste, epochs are
not run as short ones until some in a row were no waste: the joins are timed by themselves. A trace
has to be faster than both, because an epoch with a trace is not run in one call. An epoch between
short ones that had to be run join by join says nothing about the others, and is no waste.

A trace whose intervals need more memory than a multiple of what the rule reads is given up while it
is recorded. Rules of two atoms are not considered: their delta joins look up what they find.

The state is that of `Counting`, under the same name: a database does not depend on the choice.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

from tidelog.join.gather import Tally
from tidelog.join.trace import RuleTrace
from tidelog.maintain.counting import Counting
from tidelog.maintain.epoch_program import EpochProgram
from tidelog.maintain.leapfrog import Leapfrog
from tidelog.plan.body import LoweredRule
from tidelog.plan.lowered import Layer
from tidelog.plan.traces import untraceable
from tidelog.store.catalog import Catalog
from tidelog.store.relation import StoredRelation
from tidelog.store.versions import Version

_PATIENCE = 4.0  # how many evaluations the waste must have cost before a trace is recorded
_NEW_ROW = 1e-6  # seconds that evaluating the relation takes for a row that has come since
_LEAST = 2e-4  # seconds: delta joins that take less are not waste
_INSTANTIATION = 1e-6  # seconds that a delta join may take for each row that it finds
_SUSPICIOUS = 3  # short epochs in a row that seem to be waste, until joins are timed one by one
_TRIAL = 8  # epochs after which a trace is judged
_FASTER = 1.5  # how many times as fast it must be
_MEMORY = 3  # times what the rule reads


@dataclass
class TraceTrial:
    """What the epochs of a rule have taken."""

    waste: float = 0.0
    epochs: int = 0
    """How many of them were waste."""
    traced: float = 0.0
    traced_epochs: int = 0
    shorts: int = 0
    """The number of short epochs before the last epoch that ran join by join."""
    in_a_row: int = 0
    """How many epochs have run join by join since the last short one."""
    declined: str = ""
    """Why the rule has no trace, if one was tried."""


def can_be_measured(rule: LoweredRule) -> bool:
    """Return whether a trace may be better than the delta joins of a rule."""
    return sum(1 for _ in rule.positive) > 2 and untraceable(rule) is None


def _is_waste(seconds: float, found: int) -> bool:
    """Return whether joins took longer than the rows that they found are worth."""
    return seconds > _LEAST + _INSTANTIATION * found


class MeasuredCounting(Leapfrog):
    """Maintains one relation by delta joins, and by traces where they have shown to be faster."""

    name = Counting.name
    wants_times = True

    def __init__(self, catalog: Catalog, layer: Layer) -> None:
        super().__init__(catalog, layer)
        self._evaluation = 0.0
        self._evaluated_rows = 0
        self._reset()

    def _reset(self) -> None:
        self._is_timed = False  # whether epochs are not run as short ones, which would hide waste
        self._quick = 0  # epochs without waste since the last one with it
        self._shorts = 0  # short epochs since the bootstrap
        self._slow = 0  # short epochs in a row that may have been waste
        self._slow_seconds = 0.0  # what these took
        self._short_cost = math.inf  # what each of them took that led to timing the joins
        self._is_traced = [False] * len(self._joins)
        self.trials = {
            number: TraceTrial()
            for number, joins in enumerate(self._joins)
            if can_be_measured(joins.rule)
        }
        """What is known of each rule that may have a trace."""

    def bootstrap(self) -> None:
        """Compute the relation, and note how long that takes."""
        start = time.perf_counter()
        super().bootstrap()
        self._evaluation = time.perf_counter() - start
        self._reset()
        self._evaluated_rows = sum(map(self._rows_read, self.trials))

    def add_steps(self, program: EpochProgram) -> bool:
        """Add a step, unless the joins have to be timed."""
        return not self._is_timed and super().add_steps(program)

    def was_short(self, seconds: float, found: int) -> bool:
        """Time the joins from now on, if they may have taken long and found little."""
        may_change = any(not trial.declined for trial in self.trials.values())
        self._shorts += 1
        if may_change and _is_waste(seconds, found):
            self._slow += 1
            self._slow_seconds += seconds
        else:
            self._slow, self._slow_seconds = 0, 0.0
        if self._slow >= _SUSPICIOUS:
            self._short_cost = self._slow_seconds / self._slow
            self._is_timed, self._quick, self._slow, self._slow_seconds = True, 0, 0, 0.0
            self._catalog.stamp = object()
        return self._is_timed

    def _add_change(self, number: int, tally: Tally) -> None:
        trial = self.trials.get(number)
        if trial is None:
            super()._add_change(number, tally)
            return
        if not any(self._changed(self._joins[number].rule)):
            return
        may_begin = not self._is_traced[number] and not trial.declined and trial.epochs >= _TRIAL
        if may_begin and trial.waste > _PATIENCE * self._evaluation_cost():
            self._begin(number, trial)
        is_traced, meter = self._is_traced[number], self._catalog.meter
        start, before = time.perf_counter(), meter.touched
        super()._add_change(number, tally)
        seconds = time.perf_counter() - start
        if is_traced:
            self._judge(number, trial, seconds)
        elif not self._is_telling(trial):
            pass
        elif _is_waste(seconds, meter.touched - before):
            trial.waste += seconds
            trial.epochs += 1
            self._quick = 0
        else:
            self._quick += 1
        if self._is_timed and (trial.declined or self._quick >= _TRIAL):
            self._is_timed = False
            self._catalog.stamp = object()
        if trial.declined:
            self.choice = replace(self.choice, why=f"by delta joins: {trial.declined}")

    def _is_telling(self, trial: TraceTrial) -> bool:
        """Return whether the time of an epoch's joins says what such epochs take as a rule."""
        trial.in_a_row = trial.in_a_row + 1 if trial.shorts == self._shorts else 1
        trial.shorts = self._shorts
        return self._is_timed or not self._shorts or trial.in_a_row > _SUSPICIOUS

    def _evaluation_cost(self) -> float:
        """Return about how many seconds evaluating the relation would take now."""
        new = sum(map(self._rows_read, self.trials)) - self._evaluated_rows
        return max(self._evaluation, _NEW_ROW * new)

    def _rows_read(self, number: int) -> int:
        return sum(relation.stored for relation in self._read_by(number))

    def _read_by(self, number: int) -> list[StoredRelation]:
        rule = self._joins[number].rule
        names = dict.fromkeys(atom.relation for atom in rule.atoms)
        return [self._catalog.relations[name] for name in names]

    def _begin(self, number: int, trial: TraceTrial) -> None:
        """Record the trace of a rule, unless it needs too much memory."""
        trace = RuleTrace(self._catalog, self._joins[number].rule)
        if trace.record(Version.OLD, self._most_memory(number)):
            self.traces.by_rule[number] = trace
            self._is_traced[number] = True
            self._catalog.stamp = object()  # short epochs would not follow the trace
        if self._is_too_large(number, trace.estimate or trace.nbytes, trial):
            self._give_up(number)

    def _most_memory(self, number: int) -> int:
        return _MEMORY * sum(relation.nbytes for relation in self._read_by(number))

    def _is_too_large(self, number: int, size: float, trial: TraceTrial) -> bool:
        """Return whether a trace of `size` bytes needs too much memory; note it if so."""
        most = self._most_memory(number)
        if size <= most:
            return False
        times = size * _MEMORY / most if most else math.inf
        trial.declined = (
            f"its trace needs about {times:,.0f} times the memory of what it reads, more than"
            f" {_MEMORY} times"
        )
        return True

    def _give_up(self, number: int) -> None:
        self._is_traced[number] = False
        self.traces.by_rule.pop(number, None)
        self._catalog.stamp = object()  # short epochs can run the rule again

    def _judge(self, number: int, trial: TraceTrial, seconds: float) -> None:
        """Time an epoch of a trace, and give the trace up if it is not faster."""
        trial.traced += seconds
        trial.traced_epochs += 1
        delta = min(trial.waste / trial.epochs, self._short_cost)
        mean = trial.traced / trial.traced_epochs
        told = f"{mean * 1e3:.2f} ms, delta joins {delta * 1e3:.2f} ms"
        self.choice = replace(self.choice, why=f"by its trace: {told}")
        if trial.traced_epochs < _TRIAL:
            return
        trial.traced, trial.traced_epochs = 0.0, 0
        if mean * _FASTER > delta:
            trial.declined = f"its trace took {told}"
        if trial.declined or self._is_too_large(number, self.traces.by_rule[number].nbytes, trial):
            self._give_up(number)
