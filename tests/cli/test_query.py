"""`tidelog query`, and `tidelog run` of programs whose outputs bind constants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.cli.query import ask_program
from tidelog.cli.run import run_program
from tidelog.errors import ProgramError
from tidelog.logic.program import Program
from tidelog.plan.demand_choice import pays_on_demand

SAME_GENERATION = """
.decl parent(child: number, parent: number)
.input parent
.decl same(x: number, y: number)
same(x, x) :- parent(_, x).
same(x, y) :- parent(x, p), parent(y, q), same(p, q).
"""
ASKED = SAME_GENERATION + ".decl cousin(x: number)\n.output cousin\ncousin(x) :- same(9, x).\n"


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    """A binary tree of depth 15: it has 358 million pairs of the same generation."""
    rows = (f"{i}\t{i // 2}\n" for i in range(2, 2**16))
    (tmp_path / "parent.facts").write_text("".join(rows))
    return tmp_path


def test_only_what_is_asked_for_is_computed(
    facts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = facts / "same.dl"
    program.write_text(SAME_GENERATION)
    ask_program(program, "same(32768, 65535)", facts, "kernel", headers=False)
    assert capsys.readouterr().out == "()\n"
    ask_program(program, "same(32768, 7)", facts, "kernel", headers=False)
    assert capsys.readouterr().out == ""
    ask_program(program, "same(4, x), x > 5", facts, "kernel", headers=True)
    assert capsys.readouterr().out == "x\n6\n7\n"


def test_a_run_whose_output_binds_a_constant(facts: Path) -> None:
    program = facts / "asked.dl"
    program.write_text(ASKED)
    run_program(program, facts, str(facts), None, False)
    assert (facts / "cousin.csv").read_text().split() == [str(i) for i in range(8, 16)]


def test_a_mistake_in_the_body_is_found_before_facts_are_read(tmp_path: Path) -> None:
    program = tmp_path / "same.dl"
    program.write_text(SAME_GENERATION)
    with pytest.raises(ProgramError, match="<query>:1:1: error: relation `sane` is not declared"):
        ask_program(program, "sane(1, x)", tmp_path / "nowhere", "kernel", headers=False)


@pytest.mark.parametrize(
    ("program", "pays"),
    [
        (ASKED, True),
        (SAME_GENERATION + ".output same", False),
        (ASKED + ".output same", False),
        (ASKED + ".decl more(x: number)\n.output more\nmore(y) :- cousin(x), y = x + 1.", False),
        (".decl a(x: number) .decl b(x: number) b(x) :- a(x). .output b", False),
    ],
)
def test_when_a_run_is_on_demand(program: str, pays: bool) -> None:
    assert pays_on_demand(Program.parse(program)) is pays
