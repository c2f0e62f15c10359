"""`tidelog query`: facts in, the answers to one question out."""

from __future__ import annotations

import sys
from pathlib import Path

from tidelog.cli.compiling import compile_first
from tidelog.cli.progress import shown_progress
from tidelog.cli.run import read_given
from tidelog.database.core import Options
from tidelog.database.database import open_database
from tidelog.io.parameters import check_parameters
from tidelog.io.results import format_rows
from tidelog.logic.program import Program
from tidelog.logic.query import QueryChecker


def ask_program(path: Path, body: str, facts: Path, engine: str, *, headers: bool) -> None:
    """Print the rows that satisfy a rule body."""
    program = Program.load(path)
    check_parameters(program)
    query = QueryChecker(program).check(body)  # before facts are read
    given = read_given(program, facts)
    if engine == "kernel":
        compile_first()
    with shown_progress() as progress:
        options = Options(
            engine=engine, progress=progress, expects_updates=False, on_demand=engine == "kernel"
        )
        answers = open_database(program, options, given).query(body)
    parameters = {"headers": "true"} if headers else {}
    sys.stdout.write(format_rows(answers, query.shown, program.records, parameters))
