"""The file `rules.changes` of an epoch."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelog
from tidelog.io.changes import read_rule_changes
from tidelog.logic.program import Program
from tidelog.logic.rule_changes import changed_program

PROGRAM = Program.parse(".decl p(x: number) .decl q(x: number)\nq(x) :- p(x).\n")


def test_signs_begin_statements_and_other_lines_continue_them(tmp_path: Path) -> None:
    file = tmp_path / "rules.changes"
    file.write_text("+ q(x + 1) :-\n    p(x),\n    x < 3.\n- q(x) :- p(x).\n+ p(7).\n\n")
    change = read_rule_changes(file)
    (added,), (dropped,) = change.added, change.dropped
    assert added.lines == ["  q(x + 1) :-", "    p(x),", "    x < 3.", "", "  p(7).", "", ""]
    assert dropped.lines == ["", "", "", "  q(x) :- p(x).", "", "", ""]
    program = changed_program(PROGRAM, change)
    assert [rule.text for rule in program.rules] == ["q(x + 1) :- p(x), x < 3."]
    assert [fact.row for fact in program.facts] == [(7,)]


def test_positions_are_those_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "rules.changes"
    file.write_text("- q(x) :- p(x).\n+ q(y) :-\n    p(x).\n")
    with pytest.raises(tidelog.ProgramError, match=r"rules.changes:2:5: error: .*`y` is not bound"):
        changed_program(PROGRAM, read_rule_changes(file))


def test_a_line_without_a_sign_at_first(tmp_path: Path) -> None:
    file = tmp_path / "rules.changes"
    file.write_text("\nq(x) :- p(x).\n")
    with pytest.raises(tidelog.FactsError, match=r"rules.changes:2:1: expected `\+` or `-`"):
        read_rule_changes(file)
    file.write_bytes(b"+ \xff")
    with pytest.raises(tidelog.UsageError, match="is not UTF-8 text"):
        read_rule_changes(file)
