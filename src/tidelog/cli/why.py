"""`tidelog why`: why a row is in a view, or why it is not."""

from __future__ import annotations

import json
from pathlib import Path

from tidelog.cli.compiling import compile_first
from tidelog.cli.progress import shown_progress
from tidelog.cli.run import read_given
from tidelog.database.core import Options
from tidelog.database.database import open_database
from tidelog.errors import ProgramError, UsageError
from tidelog.io.parameters import check_parameters
from tidelog.logic.program import Program
from tidelog.values.types import Row


def why_row(
    path: Path,
    view: str,
    values: str,
    facts: Path,
    engine: str,
    *,
    is_missing: bool,
    depth: int,
    as_json: bool,
    svg: Path | None,
) -> None:
    """Print why a row is in a view, or with `is_missing` why it is not; draw it into `svg`."""
    program = Program.load(path)
    check_parameters(program)
    row = _parsed(program, view, values)
    given = read_given(program, facts)
    if engine == "kernel":
        compile_first()
    with shown_progress() as progress:
        options = Options(engine=engine, progress=progress, expects_updates=False)
        database = open_database(program, options, given)
    found = database.why_not(view, row, depth=depth) if is_missing else database.why(view, row)
    if svg is not None:
        from tidelog.io.atomic import replace_text

        replace_text(svg, found.svg())
    elif as_json:
        print(json.dumps(found.to_json(), indent=2, ensure_ascii=False))
    else:
        print(found)


def _parsed(program: Program, view: str, values: str) -> Row:
    """Return a row that is written as the values of a fact."""
    relation = program.relation(view)
    name = "why_row"
    while name in program.relations:
        name += "_"
    columns = ", ".join(f"{column.name}: {column.declared}" for column in relation.columns)
    text = f"{program.text}\n.decl {name}({columns})\n{name}({values}).\n"
    try:
        facts = Program.parse(text, "row").facts
    except ProgramError as error:
        reason = error.diagnostics[0].message.replace(name, view)
        raise UsageError(
            f"`{values}` is not a row of {relation}: {reason}"
            "\n  help: write the values as in a fact of the program"
        ) from None
    if not facts or facts[-1].relation != name:
        raise UsageError(f"`{values}` is not a row of {relation}: values are constants")
    return facts[-1].row
