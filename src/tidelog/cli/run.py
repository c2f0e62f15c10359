"""`tidelog run`: facts in, views and their changes out."""

from __future__ import annotations

import sys
from pathlib import Path

from tidelog.cli.compiling import compile_first
from tidelog.cli.progress import shown_progress
from tidelog.cli.stats import StepClock, print_stats
from tidelog.database.core import Options
from tidelog.database.database import Database, open_database
from tidelog.database.transaction import Transaction
from tidelog.engine.report import EpochReport
from tidelog.errors import FactsError, did_you_mean
from tidelog.io.changes import (
    RULES,
    epoch_files,
    format_changes,
    list_epochs,
    read_changes,
    read_rule_changes,
)
from tidelog.io.columns import CheckedTable
from tidelog.io.facts import FactsFile, facts_path, open_facts
from tidelog.io.parameters import check_parameters
from tidelog.io.results import OutputPlan, ResultFile
from tidelog.io.tabular import CheckedRows
from tidelog.logic.program import Directive, DirectiveKind, Program
from tidelog.plan.demand_choice import pays_on_demand
from tidelog.runtime.workers import Workers, threads_wanted


def run_program(
    path: Path,
    facts: Path,
    output: str,
    epochs: Path | None,
    stats: bool,
    engine: str = "kernel",
    threads: int | None = None,
) -> None:
    """Evaluate, apply the epochs, and write everything at the end."""
    clock = StepClock()
    program = Program.load(path)
    check_parameters(program)
    epoch_folders = list_epochs(epochs) if epochs is not None else []
    clock.lap("load the program")
    given = read_given(program, facts)
    clock.lap("read the facts")
    plan = OutputPlan(Path() if output == "-" else Path(output))
    if engine == "kernel" and compile_first():
        clock.lap("compile the kernels")
    with shown_progress() as progress:
        once = engine == "kernel" and not epoch_folders and not stats
        options = Options(
            engine=engine,
            progress=progress,
            expects_updates=bool(epoch_folders),
            on_demand=once and pays_on_demand(program),
            threads=None if threads is None else threads_wanted(threads),
        )
        database = open_database(program, options, given)
        is_opened = any(isinstance(rows, FactsFile) for rows in given.values())
        clock.lap("read large files, and evaluate" if is_opened else "evaluate")
        reports = [("first evaluation", database.last_epoch)]
        _report_late(*reports[-1])
        for folder in epoch_folders:
            changes = _apply_epoch(database, folder)
            program = database.program
            for name in program.outputs:
                relation = program.relations[name]
                change = changes.changes[name]
                text = format_changes(change.inserted, change.deleted, relation, program.records)
                plan.add_text(Path("changes") / folder.name / f"{name}.changes", text)
            clock.lap(f"epoch {folder.name}")
            reports.append((f"epoch {folder.name}", database.last_epoch))
            _report_late(*reports[-1])
    outputs = []
    for i, directive in enumerate(program.directives):
        if directive in program.directives[:i]:
            continue  # a repeated directive has no effect
        if directive.kind is not DirectiveKind.INPUT:
            name = directive.relation
            shown = _to_stdout(directive) if output == "-" else directive
            outputs.append(ResultFile(shown, program.relations[name], database.view(name)))
    workers = Workers(threads_wanted(threads))
    plan.add(outputs, program.records, workers)
    if output == "-":
        plan.files.clear()  # there are no files for the changes of epochs
    sys.stdout.write(plan.write(workers))
    clock.lap("write the results")
    if stats:
        print_stats(database, reports, clock)


def read_given(program: Program, facts: Path) -> dict[str, CheckedRows | CheckedTable | FactsFile]:
    """Return the rows of the files that `.input` directives name; large ones are only opened."""
    given: dict[str, CheckedRows | CheckedTable | FactsFile] = {}
    for directive in program.directives_of(DirectiveKind.INPUT):
        relation = program.relations[directive.relation]
        file = facts_path(directive, facts)
        rows = open_facts(file, relation, program.records, directive.parameters)
        held = given.get(directive.relation)
        if held is not None:  # a relation with several files
            rows = CheckedRows([*held, *rows])
        given[directive.relation] = CheckedRows(rows) if isinstance(rows, list) else rows
    return given


def _apply_epoch(database: Database, folder: Path) -> Transaction:
    program = database.program
    tx = database.transaction()
    with tx:
        files = epoch_files(folder)
        if RULES in files and RULES not in program.relations:
            tx.change_rules(read_rule_changes(files.pop(RULES)))
            program = tx.program
            check_parameters(program)
        for name, file in files.items():
            if name not in program.relations:
                reason = f"the program does not declare a relation `{name}`"
                hint = did_you_mean(name, program.relations)
                raise FactsError(str(file), None, None, reason, hint)
            rows = read_changes(file, program.relations[name], program.records)
            tx.insert(name, CheckedRows(row for added, row in rows if added))
            tx.delete(name, CheckedRows(row for added, row in rows if not added))
    return tx


def _report_late(when: str, report: EpochReport) -> None:
    """Say which given rows `.retain` has left out."""
    for name, count in report.late.items():
        what = f"{count:,} row{'s' * (count != 1)} of `{name}` {'were' if count != 1 else 'was'}"
        print(f"{when}: {what} too old to be retained, and left out", file=sys.stderr)


def _to_stdout(directive: Directive) -> Directive:
    if directive.kind is DirectiveKind.PRINTSIZE:
        return directive
    return Directive(
        directive.kind, directive.relation, {**directive.parameters, "IO": "stdout"}, directive.span
    )
