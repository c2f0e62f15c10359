"""Texts that have become others: parsing what has changed gives what parsing everything gives."""

from __future__ import annotations

import pytest

from tests.seeds import case_seeds, seeded
from tidelog.lang import syntax as s
from tidelog.logic.parsed_texts import ParsedTexts
from tidelog.source import SourceText

STATEMENTS = (
    ".decl p(x: number)",
    ".decl q(x: number)  .output q",
    "p(1).",
    "p(x) :- q(x),\n    x > 1.",
    "q(x) :- p(x). q(2).",
    "// a note: p(1).",
    "/* p(3).\n p(4). */ p(5).",
    "p(6). /* open\n here */ q(7).",
)


def places(statements: tuple[s.Statement, ...]) -> list[tuple[s.Statement, int, int]]:
    return [(each, each.span.line, each.span.column) for each in statements]


@pytest.mark.parametrize("seed", case_seeds(40, offset=5_000))
def test_lines_that_are_shared_are_not_parsed_again(seed: int) -> None:
    rng = seeded(seed)
    texts = ParsedTexts()
    lines = [rng.choice(STATEMENTS) for _ in range(6)]
    for _ in range(6):
        old = SourceText("a program", "\n".join(lines))
        del lines[rng.randrange(len(lines))]
        lines.insert(rng.randrange(len(lines) + 1), rng.choice(STATEMENTS))
        new = SourceText("a program", "\n".join(lines))
        whole = ParsedTexts().statements(new)
        assert texts.follow(old, new, whole)
        assert places(texts.statements(new)) == places(whole)
        assert not texts.follow(old, new, whole[1:])


def test_macros_reach_into_what_has_not_changed() -> None:
    old = SourceText("a program", "p(A).\nq(1).")
    new = SourceText("a program", "#define A 3\np(A).\nq(1).")
    texts = ParsedTexts()
    assert not texts.follow(old, new, texts.statements(old))
    assert texts.statements(new) == ParsedTexts().statements(new)
