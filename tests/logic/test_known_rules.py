"""A program that is changed step by step is the program that its text gives."""

from __future__ import annotations

from typing import Any

import pytest

import tidelog
from tests.seeds import case_seeds, seeded
from tidelog.lang import syntax as s
from tidelog.logic import analyse
from tidelog.logic.program import Program
from tidelog.logic.rule_changes import RuleChange, changed_program

BASE = """
.type Id <: number
.type Tree = Leaf {} | Node { left: Tree, right: Tree }
.decl p(x: number)
.decl q(x: number, y: number)
.decl t(x: Tree)
"""
CHANGES = (
    "p(x) :- q(x, _), x > 1.",
    "p(x) :- q(_, x).",
    "q(x, y) :- p(x), p(y).",
    "q(x, n) :- p(x), n = count : { q(x, _) }.  // not stratified with some",
    "p(7). q(x, x) :- p(x).",
    "p(1), q(1, 2).",
    "t($Leaf()).",
    "t($Node(x, x)) :- t(x).",
    ".decl more(x: Id)",
    "p(x) :- more(x).",
    "more(x) :- p(x), x < 5.",
)


@pytest.mark.parametrize("seed", case_seeds(30, offset=5_100))
def test_rules_that_are_known_are_as_if_they_were_checked(seed: int) -> None:
    rng = seeded(seed)
    program, held, compared = Program.parse(BASE), [], 0
    for _ in range(12):
        if held and rng.random() < 0.4:
            text = rng.choice(held)
            change = RuleChange.of(dropped=text)
        else:
            text = rng.choice([text for text in CHANGES if text not in held])
            change = RuleChange.of(added=text)
        try:
            program = changed_program(program, change)
        except tidelog.ProgramError:
            continue
        (held.remove if change.dropped else held.append)(text)
        parsed = Program.parse(program.text)
        assert parsed.rules == program.rules
        assert parsed.facts == program.facts
        compared += 1
    assert compared > 0


def test_only_what_is_new_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    checked: list[str] = []
    normalise = analyse.normalise

    def noted(statement: s.RuleStatement, *args: Any) -> Any:
        checked.append(str(statement.span))
        return normalise(statement, *args)

    monkeypatch.setattr(analyse, "normalise", noted)
    program = changed_program(Program.parse(BASE), RuleChange.of("p(x) :- q(x, _)."))
    program = changed_program(program, RuleChange.of("p(x) :- q(_, x)."))
    checked.clear()
    changed_program(program, RuleChange.of("q(x, x) :- p(x)."))
    assert len(checked) == 2  # the one before has a place in the text of the program now
    checked.clear()
    changed_program(program, RuleChange.of(".decl r(x: number)  q(x, x) :- r(x)."))
    assert len(checked) == 3  # among other declarations, all of them


def test_other_declarations_are_noticed() -> None:
    text = ".decl a(x: number)  .decl b(x: number)\nb(x) :- a(x), x > 1."
    program = changed_program(Program.parse(text), RuleChange.of("b(x) :- a(x), x < 0."))
    other = RuleChange.of(".decl a(x: symbol)", ".decl a(x: number)")
    with pytest.raises(tidelog.ProgramError, match="type-mismatch"):
        changed_program(program, other)
    assert len(changed_program(program, RuleChange.of("b(3).")).rules) == 2
