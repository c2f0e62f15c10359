"""A case whose rules change from epoch to epoch, on the kernel and on the oracle."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp

import tidelog
from tests.generators.programs import RandomCase, Row
from tests.maintain.comparing import (
    Contents,
    Given,
    Prepare,
    compare_changes,
    compare_contents,
    compare_state,
    must_fail,
)
from tests.maintain.levels import State
from tidelog.database.database import kernel_of
from tidelog.engine.kernel import KernelEngine
from tidelog.logic.program import Program
from tidelog.logic.rule_changes import RuleChange, changed_program
from tidelog.plan.planned import planned
from tidelog.reference import evaluate
from tidelog.source import SourceText

_NONE: frozenset[Row] = frozenset()


class RuleComparison:
    """Replays cases whose rules come and go, and counts what has happened in them.

    After every epoch: contents, exact net changes, and levels and counts equal to those of an
    engine that has evaluated the changed program from scratch. An epoch that fails leaves the
    program and all rows as they were.

    With `virtual`, views become virtual and stored again, too. What is not computed does not fail,
    so epochs on which the oracle fails are left out then.
    """

    def __init__(self, prepare: Prepare | None = None, *, virtual: bool = False) -> None:
        self._prepare = prepare or (lambda engine: None)
        self._virtual = virtual
        self.seen: Counter[str] = Counter()

    def check(self, case: RandomCase) -> None:
        """Assert that the kernel and the oracle agree on all of the case."""
        rng = random.Random(f"rules {case.seed}")
        rules = list(dict.fromkeys(str(rule) for rule in case.rules))
        declared = [*case.types, *map(str, case.declarations)]
        held = [rule for rule in rules if rng.random() < 0.5]
        if self._virtual:
            rules, held = with_virtual_views(case, rules, held, rng)
        program = Program.parse("\n".join([*declared, *held]))
        given: Given = {name: set(case.facts.get(name, ())) for name in program.relations}
        try:
            contents: Contents = evaluate(program, given)
            kernel = KernelEngine(program, given)
        except (tidelog.DataError, tidelog.ProgramError):
            self.seen["left out"] += 1
            return
        self._prepare(kernel)
        self.seen["programs"] += 1
        state = fresh_state(program, given)
        for number, epoch in enumerate(case.epochs):
            where = f"epoch {number}"
            changed, held_now = program, held
            if rng.random() < 0.7:
                try:
                    changed, held_now = self._changed(program, rules, held, rng)
                    planned(changed)
                except tidelog.ProgramError:
                    assert self._virtual
                    self.seen["refused"] += 1
                    changed, held_now = program, held
            inserted, deleted = {}, {}
            if rng.random() < 0.6:
                inserted = {n: set(adds) - set(removes) for n, (adds, removes) in epoch.items()}
                deleted = {n: set(removes) - set(adds) for n, (adds, removes) in epoch.items()}
            new = {
                n: (rows - deleted.get(n, set())) | inserted.get(n, set())
                for n, rows in given.items()
            }
            asked = None if changed is program else changed
            self.seen["epochs"] += 1
            try:
                after = evaluate(changed, new)
            except tidelog.DataError:
                self.seen["epochs that fail"] += 1
                if self._virtual:
                    continue
                must_fail(lambda: kernel.apply(inserted, deleted, None, asked))  # noqa: B023
                assert kernel.program is program, where
                compare_contents(kernel, contents, f"after the failed {where}")
                compare_state(kernel, state, f"after the failed {where}")
                kernel.check()
                continue
            effects = kernel.apply(inserted, deleted, None, asked)
            for report in kernel.last_epoch.layers if asked else ():
                self.seen[f"{report.strategy}: {report.choice}"] += 1
            assert kernel.program is changed
            compare_changes(effects, contents, after, where)
            compare_contents(kernel, after, where)
            program, held, given, contents = changed, held_now, new, after
            state = fresh_state(program, given)
            compare_state(kernel, state, where)
            kernel.check()

    def _changed(
        self, program: Program, rules: list[str], held: list[str], rng: random.Random
    ) -> tuple[Program, list[str]]:
        """Return the program with some rules dropped and others added."""
        added, dropped = random_change(rules, held, rng)
        self.seen["added"] += len(added)
        self.seen["dropped"] += len(dropped)
        change = RuleChange(_texts("added", added), _texts("dropped", dropped))
        changed = changed_program(program, change)
        return changed, [r for r in held if r not in dropped] + added


class ReopenedRules:
    """Replays cases in durable databases that are opened again, with the same rules or others.

    With `virtual`, views become virtual and stored again, too.
    """

    def __init__(self, folder: Path, *, virtual: bool = False) -> None:
        self._folder, self._virtual = folder, virtual
        self.seen: Counter[str] = Counter()

    def check(self, case: RandomCase) -> None:
        """Assert that the database agrees with the oracle, whenever it is opened."""
        rng = random.Random(f"reopened {case.seed}")
        rules = list(dict.fromkeys(str(rule) for rule in case.rules))
        declared = [*case.types, *map(str, case.declarations)]
        held = [rule for rule in rules if rng.random() < 0.5]
        if self._virtual:
            rules, held = with_virtual_views(case, rules, held, rng)
        program = Program.parse("\n".join([*declared, *held]))
        path = Path(mkdtemp(dir=self._folder))
        given: Given = {name: set(case.facts.get(name, ())) for name in program.relations}
        try:
            evaluate(program, given)
            planned(program)
        except (tidelog.DataError, tidelog.ProgramError):
            return
        db = tidelog.Database(program, path=path, facts=given)
        for epoch in case.epochs:
            added, dropped = random_change(rules, held, rng)
            now = [rule for rule in held if rule not in dropped] + added
            try:
                changed = Program.parse("\n".join([*declared, *now]))
                planned(changed)
            except tidelog.ProgramError:
                assert self._virtual
                continue
            new = {
                name: (rows - (set(epoch[name][1]) - set(epoch[name][0])))
                | (set(epoch[name][0]) - set(epoch[name][1]))
                if name in epoch
                else rows
                for name, rows in given.items()
            }
            migrates = rng.random() < 0.4
            try:
                after = evaluate(changed, given if migrates else new)
            except tidelog.DataError:
                continue
            if migrates:
                db.close()
                db = tidelog.Database(changed, path=path, on_program_change="migrate")
                self.seen["migrated"] += db.opened is not None and db.opened.migrated
            else:
                with db.transaction() as transaction:
                    transaction.change_rules(
                        RuleChange(_texts("added", added), _texts("dropped", dropped))
                    )
                    for name, (adds, removes) in epoch.items():
                        transaction.insert(name, adds)
                        transaction.delete(name, removes)
                given = new
            held = now
            if rng.random() < 0.3:
                db.snapshot()
            if rng.random() < 0.5:
                db.close()
                db = tidelog.Database(changed, path=path)
                assert db.opened is not None and not db.opened.rebuilt
                self.seen["opened"] += 1
            reader: tidelog.Database | tidelog.Reader = db
            if rng.random() < 0.3:
                try:
                    reader = tidelog.Database.reader(path)
                except tidelog.StateError as error:
                    assert self._virtual and "a snapshot lets it be read" in str(error)
                    self.seen["not read"] += 1
            virtual = {name for name, view in changed.views.items() if view.virtual}
            for name, rows in after.items():
                if reader is not db and name in virtual:
                    continue
                assert set(reader.view(name)) == rows, name
            compare_state(kernel_of(db), fresh_state(changed, given), "in the database")
            kernel_of(db).check()
        db.close()


def random_change(
    rules: list[str], held: list[str], rng: random.Random
) -> tuple[list[str], list[str]]:
    """Return some rules to add, and some to drop."""
    dropped = [rule for rule in held if rng.random() < 0.3]
    added = [rule for rule in rules if rule not in held and rng.random() < 0.5]
    if rng.random() < 0.3 and dropped:
        added += dropped[:1]  # it comes back at once
    return added, dropped


def with_virtual_views(
    case: RandomCase, rules: list[str], held: list[str], rng: random.Random
) -> tuple[list[str], list[str]]:
    """Return all statements and those that are held, with directives for virtual views."""
    functional = {d.name for d in case.declarations if d.functional}
    derived = sorted(Program.parse(case.program).derived - functional)
    declared = [*case.types, *map(str, case.declarations)]
    now = Program.parse("\n".join([*declared, *held])).derived
    views = {name: f".view {name}(virtual=true)" for name in derived}
    chosen = [view for name, view in views.items() if name in now and rng.random() < 0.6]
    return [*rules, *views.values()], [*held, *chosen]


def _texts(name: str, rules: Iterable[str]) -> tuple[SourceText, ...]:
    return tuple(SourceText(name, rule) for rule in rules)


def fresh_state(program: Program, given: Given) -> dict[str, State]:
    """Return the levels and counts of an engine that evaluates the program from scratch."""
    engine = KernelEngine(program, given, expects_updates=False)
    return {name: engine.levels_and_counts(name) for name in program.relations}
