"""A case on the kernel and on the oracle, epoch by epoch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import tidelog
from tests.generators.programs import RandomCase, Row
from tests.maintain.levels import State, levels_and_counts
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.protocol import Effects, Ignored
from tidelog.logic.program import Program
from tidelog.maintain.elastic import Elastic, OverBudgetError
from tidelog.plan.planned import planned
from tidelog.reference import evaluate

STRATEGIES = ["counting", "elastic", "recompute", "theta-tree", "leapfrog"]
Given = dict[str, set[Row]]
Contents = Mapping[str, frozenset[Row]]
Prepare = Callable[[KernelEngine], None]
Strategies = Mapping[str, str]


class Comparison:
    """Replays cases, and counts what has happened in them.

    After every epoch: contents, exact net changes, and state (levels and counts) equal to that of a
    fresh bootstrap on the same facts. An epoch that fails leaves everything as it was.
    """

    def __init__(
        self,
        prepare: Prepare | None = None,
        force: Callable[[RandomCase], Strategies] | None = None,
    ) -> None:
        """Prepare every kernel, and force the strategies that `force` chooses for a case."""
        self._prepare = prepare or (lambda engine: None)
        self._force = force or (lambda case: {})
        self._strategies: Strategies = {}
        self.seen: Counter[str] = Counter()

    def check(self, case: RandomCase) -> None:
        """Assert that the kernel and the oracle agree on all of the case."""
        program = Program.parse(case.program)
        self._strategies = self._force(case)
        given: Given = {name: set(case.facts.get(name, ())) for name in program.relations}
        self.seen["programs"] += 1
        started = self._start(program, given)
        if started is None:
            self.seen["first evaluations that fail"] += 1
            given = {name: set() for name in program.relations}
            started = self._start(program, given)
            if started is None:
                return
        kernel, contents = started
        self._prepare(kernel)
        fresh = Fresh(program, given, self._strategies)
        state = fresh.state(given)
        compare_contents(kernel, contents, "at first")
        _compare_levels(kernel, state, levels_and_counts(program, given), "at first")
        for number, epoch in enumerate(case.epochs):
            inserted = {n: set(adds) - set(removes) for n, (adds, removes) in epoch.items()}
            deleted = {n: set(removes) - set(adds) for n, (adds, removes) in epoch.items()}
            new = {
                n: (rows - deleted.get(n, set())) | inserted.get(n, set())
                for n, rows in given.items()
            }
            where = f"epoch {number}"
            self.seen["epochs"] += 1
            try:
                after = evaluate(program, new)
            except tidelog.DataError:
                self.seen["epochs that fail"] += 1
                must_fail(partial(kernel.apply, inserted, deleted))
                compare_contents(kernel, contents, f"after the failed {where}")
                compare_state(kernel, state, f"after the failed {where}")
                kernel.check()
                continue
            effects = kernel.apply(inserted, deleted)
            self._observe(kernel)
            compare_changes(effects, contents, after, where)
            assert effects.ignored == _ignored(given, inserted, deleted), f"ignored, {where}"
            compare_contents(kernel, after, where)
            given, contents = new, after
            assert all(kernel.given_count(n) == len(rows) for n, rows in given.items()), where
            state = fresh.state(given)
            compare_state(kernel, state, where)
            kernel.check()
        _compare_levels(kernel, state, levels_and_counts(program, given), "at last")
        compare_state(self._kernel(program, given), state, "in an engine of its own")

    def _start(self, program: Program, given: Given) -> tuple[KernelEngine, Contents] | None:
        """Return the kernel on these facts, and what it must hold; None if both refuse them."""
        try:
            contents = evaluate(program, given)
        except tidelog.DataError:
            must_fail(lambda: self._kernel(program, given))
            return None
        return self._kernel(program, given), contents

    def _kernel(self, program: Program, given: Given) -> KernelEngine:
        return KernelEngine(program, given, strategies=self._strategies)

    def _observe(self, kernel: KernelEngine) -> None:
        for report in kernel.last_epoch.layers:  # a strategy does not know of short epochs
            self.seen[f"{report.strategy}: {report.choice}"] += 1
        runs = max(len(r.primary.runs) for r in kernel.catalog.everything())
        self.seen["most runs"] = max(self.seen["most runs"], runs)


def must_fail(act: Callable[[], Any]) -> None:
    """Assert that there is an error of data."""
    try:
        act()
    except tidelog.DataError:
        return
    raise AssertionError("the oracle fails, and the kernel does not")


class Fresh:
    """Bootstraps again and again; its plans are kept, so that this is quick."""

    def __init__(
        self, program: Program, given: Given, strategies: Strategies | None = None
    ) -> None:
        self._engine = KernelEngine(program, given, strategies=strategies or {})
        for _, strategy in self._engine.layers:
            strategy.prepare = lambda: None  # type: ignore[method-assign]  # never updated

    def state(self, given: Given) -> dict[str, State]:
        """Return the state that a bootstrap on these facts ends with."""
        self._engine.load(given)
        return {name: self._engine.levels_and_counts(name) for name in given}


def compare_contents(kernel: KernelEngine, expected: Contents, where: str) -> None:
    for name, rows in expected.items():
        assert kernel.rows(name) == rows, f"rows of {name}, {where}"


def compare_state(kernel: KernelEngine, expected: Mapping[str, State], where: str) -> None:
    for name, state in expected.items():
        assert kernel.levels_and_counts(name) == state, f"levels and counts of {name}, {where}"


def _compare_levels(
    kernel: KernelEngine, state: Mapping[str, State], expected: Mapping[str, State], where: str
) -> None:
    """Compare a bootstrap with the definition.

    What is always re-evaluated, or not stored, has no levels and counts. Relations that lowering
    has put into a recursion (for aggregates) add levels of their own. A rule that reads a join in
    place of its result, or reducts in place of atoms, has other derivations. Nor has the definition
    levels without recursion, where an elastic update may be forced.
    """
    recursive = {name for s in kernel.program.strata if s.recursive for name in s.relations}
    for layer, strategy in kernel.layers:
        read = {atom.relation for rule in layer.rules for atom in rule.atoms}
        if any("@given" in name or "@tree" in name for name in read):
            continue
        if strategy.name == "elastic" and recursive.isdisjoint(layer.relations):
            continue
        if strategy.name in ("recompute", "theta-tree"):
            continue
        if expected.keys() >= set(layer.relations):
            for name in layer.relations:
                assert state[name] == expected[name], f"levels and counts of {name}, {where}"


def compare_changes(effects: Effects, before: Contents, after: Contents, where: str) -> None:
    for name, rows in after.items():
        change = effects.changes.get(name)
        gained = change.inserted if change else frozenset()
        lost = change.deleted if change else frozenset()
        assert gained == rows - before[name], f"inserted into {name}, {where}"
        assert lost == before[name] - rows, f"deleted from {name}, {where}"
        assert change is None or change.inserted or change.deleted, f"{name} has not changed"


def _ignored(given: Given, inserted: Given, deleted: Given) -> dict[str, Ignored]:
    ignored = {}
    for name in {*inserted, *deleted}:
        unused = Ignored(
            frozenset(inserted.get(name, set()) & given[name]),
            frozenset(deleted.get(name, set()) - given[name]),
        )
        if unused:
            ignored[name] = unused
    return ignored


# --- forcing strategies and budgets ---------------------------------------------------------------


def random_strategies(case: RandomCase) -> Strategies:
    """Return a strategy for every stratum with rules, or none, at random."""
    program = Program.parse(case.program)
    found: dict[str, str] = {}
    for stratum in program.strata:
        if not stratum.rules:
            continue
        rng = random.Random(f"{case.seed} {stratum.relations}")
        possible = ["elastic", "recompute"] if stratum.recursive else STRATEGIES
        name, strategy = rng.choice(stratum.relations), rng.choice(possible)
        # Re-evaluation can maintain everything, but needs the rows that it reads.
        for choice in (strategy, "recompute"):
            try:
                planned(program, {**found, name: choice})
            except tidelog.UsageError:
                continue
            found[name] = choice
            break
    return found


def leapfrog_strategies(case: RandomCase) -> Strategies:
    """Return `leapfrog` for every stratum that it can maintain."""
    program = Program.parse(case.program)
    found: dict[str, str] = {}
    for stratum in program.strata:
        if stratum.rules and not stratum.recursive:
            try:
                planned(program, {stratum.relations[0]: "leapfrog"})
            except tidelog.UsageError:
                continue
            found[stratum.relations[0]] = "leapfrog"
    return found


def leapfrog_forced(case: RandomCase) -> RandomCase:
    """Return a case whose program forces `leapfrog` where it can, by directives."""
    views = (f'.view {name}(strategy="{how}")' for name, how in leapfrog_strategies(case).items())
    return replace(case, types=(*case.types, *views))


def recursive_strategies(kernel: KernelEngine) -> list[Elastic]:
    """Return what keeps the recursive relations."""
    return [strategy for _, strategy in kernel.layers if isinstance(strategy, Elastic)]


def always_update(kernel: KernelEngine) -> None:
    """Let every update run to its end."""
    for strategy in recursive_strategies(kernel):
        strategy.budget = None


def abandon_at_once(kernel: KernelEngine) -> None:
    """Give every update up at its first look at the clock."""
    for strategy in recursive_strategies(kernel):
        strategy.budget = 0.0


def abandon_somewhere(kernel: KernelEngine) -> None:
    """Let updates be given up at their first look at the clock, then at the second, and so on."""
    for strategy in recursive_strategies(kernel):
        strategy._pace = _Impatient()  # type: ignore[method-assign]


class _Impatient:
    """A clock that says stop at its n-th look, with a larger n each time."""

    def __init__(self) -> None:
        self._limits = count(1)
        self._left = next(self._limits)

    def __call__(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._left = next(self._limits)
            raise OverBudgetError
