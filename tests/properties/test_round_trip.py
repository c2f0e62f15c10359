"""Printing and parsing are inverse, and formatting loses no comment."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings

from tests.generators.programs import Shape, random_case
from tests.generators.syntax_trees import (
    CONTEXTUAL,
    FORMULAS,
    MODULES,
    SPAN,
    STRINGS,
    TERMS,
)
from tests.seeds import seed_blocks
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.parser import parse
from tidelog.lang.printer import format_module
from tidelog.source import SourceText

# A failing tree is printed with its strategy, which is long; the failure counts, not its length.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")


def parsed(text: str) -> s.Module:
    diagnostics = Diagnostics()
    module = parse(SourceText("<printed>", text), diagnostics)
    diagnostics.raise_if_any()
    return module


def check_round_trip(module: s.Module) -> None:
    text = format_module(module)
    again = parsed(text)
    assert again.statements == module.statements, text
    assert format_module(again) == text


def examples(count: int):
    def decorate(test):
        # A tree is large next to the usual data of Hypothesis.
        return settings(
            max_examples=count,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )(test)

    return decorate


def rule_of(body: s.Formula | None, *heads: s.Term) -> s.Module:
    head = s.AtomFormula("head", heads, span=SPAN)
    return s.Module(SPAN.source, (s.RuleStatement((head,), body, span=SPAN),))


@examples(250)
@given(TERMS)
def test_terms(term: s.Term) -> None:
    check_round_trip(rule_of(None, term))


@examples(250)
@given(FORMULAS)
def test_formulas(formula: s.Formula) -> None:
    check_round_trip(rule_of(formula))


@examples(150)
@given(MODULES)
def test_modules(module: s.Module) -> None:
    check_round_trip(module)


@examples(150)
@given(STRINGS)
def test_strings(literal: s.StringLiteral) -> None:
    check_round_trip(rule_of(None, literal))


@pytest.mark.parametrize("name", sorted(CONTEXTUAL - {"match", "contains"}))
def test_names_that_mean_something_elsewhere(name: str) -> None:
    """Aggregates and qualifiers may name relations, columns and variables."""
    variable = s.Variable(name, span=SPAN)
    column = s.Attribute(name, s.TypeName("number", span=SPAN), span=SPAN)
    atom = s.AtomFormula(name, (variable, s.IntLiteral(1, "1", span=SPAN)), span=SPAN)
    names = (s.RelationName(name, span=SPAN),)
    declaration = s.RelationDeclaration(names, (column, column), span=SPAN)
    less = s.Compared("<", variable, variable, span=SPAN)
    rule = s.RuleStatement((atom,), s.Both((atom, less), span=SPAN), span=SPAN)
    output = s.DirectiveStatement("output", names, span=SPAN)
    check_round_trip(s.Module(SPAN.source, (declaration, output, rule, rule)))


# Found by the random tests.
FOUND = {
    "a relation called like a qualifier, its rule right behind a declaration": (
        ".decl input(x: number)\ninput(1).\n"
    ),
    "an aggregate of a record": "a(s) :- s = setof [x, y] : { r(x, y) }.\n",
    "an aggregate of a negated value": "a(s) :- s = total -x : { r(x) }.\n",
    "an aggregate of a variable called like one": "a(s) :- s = sum total : { r(total) }.\n",
    "an aggregate of a functor called like one": "a(s) :- s = sum max(x, 0) : { r(x) }.\n",
    "a functor called like an aggregate, before one": (
        "a(s) :- b(x), s = max(x, 0) + count : { r(_) }.\n"
    ),
    "a line in a comment that starts with #": "/*\n# heading\n*/\na(1).\n",
    "two comments inside a rule": "/* 1 */  /* 2\n\n */\na(1) :- b(2).\n",
}


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_found(text: str) -> None:
    assert format_module(parsed(text)) == text


SHAPE = Shape(functional=0.2, floats=0.2, strings=0.2, wide=0.2, several_heads=0.3)


@pytest.mark.parametrize("seeds", seed_blocks(40, 10, offset=40_000))
def test_random_programs(seeds: range) -> None:
    for number in seeds:
        text = random_case(number, SHAPE).program
        module = parsed(text)
        printed = format_module(module)
        assert parsed(printed).statements == module.statements, f"seed {number}\n{text}"
        assert format_module(parsed(printed)) == printed, f"seed {number}\n{text}"


# --- comments -------------------------------------------------------------------------------------


def commented(text: str, random: Random) -> tuple[str, list[str]]:
    """Return `text` with comments at random gaps, and those comments."""
    comments: list[str] = []
    out: list[str] = []
    # Strings in these programs have no spaces: every blank is a gap between tokens.
    for piece in re.split(r"([ \n])", text):
        out.append(piece)
        if piece not in (" ", "\n") or random.random() > 0.08:
            continue
        number = len(comments)
        comment = random.choice(
            [
                f'// <{number}> to the end: "quoted, /* and // again',
                f"/* <{number}> */",
                f"/* <{number}>\n   over\n\n   lines */",
                f"/** <{number}> // ** ***/",
                f"//<{number}>",
            ]
        )
        comments.append(comment)
        out.append(random.choice(["", " ", "\n", "  \n\n", "\t"]))
        out.append(comment + ("\n" if comment.startswith("//") else ""))
        out.append(random.choice(["", " ", "\n", "\n\n\n"]))
    return "".join(out), comments


@pytest.mark.parametrize("seeds", seed_blocks(40, 10, offset=41_000))
def test_comments_survive_formatting(seeds: range) -> None:
    for number in seeds:
        plain = random_case(number, SHAPE).program
        text, comments = commented(plain, Random(number))
        module = parsed(text)
        assert module.statements == parsed(plain).statements, f"seed {number}\n{text}"
        printed = format_module(module)
        for comment in comments:
            assert printed.count(comment) == 1, f"seed {number}: {comment!r}\n{text}\n->\n{printed}"
        again = parsed(printed)
        assert again.statements == module.statements, f"seed {number}\n{text}"
        assert format_module(again) == printed, f"seed {number}\n{text}"
