"""Views that are written as files: by columns, as one by one."""

from pathlib import Path

import pytest

import tidelog
from tidelog.io import results
from tidelog.io.results import OutputPlan, ResultFile
from tidelog.logic.program import Program

PROGRAM = """
.decl a(x: number, s: symbol)
.decl b(y: number)
.decl stored(s: symbol, n: number)
.decl tree(y: number, x: number)
.decl none(n: number)
stored(s, x % 100) :- a(x, s).
tree(y, x) :- a(x, _), b(y), x < y.
none(x) :- a(x, _), x < 0.
.output stored
.output tree
.output none
"""


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_files_are_the_same_by_columns(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program.parse(PROGRAM)
    words = ["", "a", "\u00e9", "\U0001f600", "B", "b c"]
    facts = {
        "a": [(x * 7 % 90, f"{words[x % 6]}{x % 40}") for x in range(600)],
        "b": [(y * 11 % 70 - 5,) for y in range(60)],
    }
    database = tidelog.Database(program, facts=facts, engine=engine)
    for folder, many in (("columns", 0), ("rows", 10**9)):
        monkeypatch.setattr(results, "_MANY", many)
        plan = OutputPlan(tmp_path / folder)
        for directive in program.directives:
            name = directive.relation
            output = ResultFile(directive, program.relations[name], database.view(name))
            plan.add([output], program.records)
        plan.write()
    for name in ("stored", "tree", "none"):
        by_columns = (tmp_path / "columns" / f"{name}.csv").read_bytes()
        assert by_columns == (tmp_path / "rows" / f"{name}.csv").read_bytes(), name
        assert bool(by_columns) == (name != "none")
