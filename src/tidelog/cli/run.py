"""`tidelog run`: facts in, views and their changes out."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tidelog.engine.database import Database
from tidelog.engine.transaction import Transaction
from tidelog.errors import FactsError, did_you_mean
from tidelog.io.changes import epoch_files, format_changes, list_epochs, read_changes
from tidelog.io.facts import facts_path, read_facts
from tidelog.io.parameters import check_parameters
from tidelog.io.results import OutputPlan
from tidelog.io.tabular import CheckedRows
from tidelog.logic.program import Directive, DirectiveKind, Program


def run_program(
    path: Path,
    facts: Path,
    output: str,
    epochs: Path | None,
    stats: bool,
    engine: str = "reference",
) -> None:
    """Evaluate, apply the epochs, and write everything at the end."""
    clock = _Clock()
    program = Program.load(path)
    check_parameters(program)
    epoch_folders = list_epochs(epochs) if epochs is not None else []
    clock.lap("load the program")
    given: dict[str, CheckedRows] = {}
    for directive in program.directives_of(DirectiveKind.INPUT):
        relation = program.relations[directive.relation]
        file = facts_path(directive, facts)
        rows = read_facts(file, relation, program.records, directive.parameters)
        given.setdefault(directive.relation, CheckedRows()).extend(rows)
    clock.lap("read the facts")
    database = Database(program, facts=given, engine=engine)
    clock.lap("evaluate")
    plan = OutputPlan(Path() if output == "-" else Path(output))
    for folder in epoch_folders:
        changes = _apply_epoch(database, folder)
        for name in program.outputs:
            relation = program.relations[name]
            change = changes.changes[name]
            text = format_changes(change.inserted, change.deleted, relation, program.records)
            plan.add_text(Path("changes") / folder.name / f"{name}.changes", text)
        clock.lap(f"epoch {folder.name}")
    for i, directive in enumerate(program.directives):
        if directive in program.directives[:i]:
            continue  # the same directive twice is as good as once
        if directive.kind is not DirectiveKind.INPUT:
            name = directive.relation
            shown = _to_stdout(directive) if output == "-" else directive
            rows = list(database.view(name))
            plan.add(shown, program.relations[name], rows, program.records)
    if output == "-":
        plan.files.clear()  # changes of epochs have nowhere to go
    sys.stdout.write(plan.write())
    clock.lap("write the results")
    if stats:
        _print_stats(database, clock)


def _apply_epoch(database: Database, folder: Path) -> Transaction:
    program = database.program
    tx = database.transaction()
    with tx:
        for name, file in epoch_files(folder).items():
            if name not in program.relations:
                reason = f"the program does not declare a relation `{name}`"
                hint = did_you_mean(name, program.relations)
                raise FactsError(str(file), None, None, reason, hint)
            rows = read_changes(file, program.relations[name], program.records)
            tx.insert(name, CheckedRows(row for added, row in rows if added))
            tx.delete(name, CheckedRows(row for added, row in rows if not added))
    return tx


def _to_stdout(directive: Directive) -> Directive:
    if directive.kind is DirectiveKind.PRINTSIZE:
        return directive
    return Directive(
        directive.kind, directive.relation, {**directive.parameters, "IO": "stdout"}, directive.span
    )


class _Clock:
    """How long each step took."""

    def __init__(self) -> None:
        self.laps: list[tuple[str, float]] = []
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps.append((name, now - self._last))
        self._last = now


def _print_stats(database: Database, clock: _Clock) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=True)
    sizes = Table("relation", "rows", "given", "derived by", title="relations")
    for name in database.program.relations:
        rules = sum(rule.head.relation == name for rule in database.program.rules)
        sizes.add_row(
            name,
            f"{len(database.view(name)):,}",
            f"{database.given_count(name):,}",
            f"{rules} rule{'s' * (rules != 1)}" if rules else "",
        )
    times = Table("step", "seconds", title=f"{database.engine} engine")
    for name, seconds in clock.laps:
        times.add_row(name, f"{seconds:.3f}")
    console.print(sizes)
    console.print(times)
