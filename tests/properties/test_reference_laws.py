"""What must hold of the reference engine whatever the program: it is a function of the rules and
rows, not of how they are written or ordered."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from random import Random

import pytest

from tests.generators.programs import (
    SMALL,
    Choice,
    Conjunct,
    NotBoth,
    RandomCase,
    RuleText,
    Shape,
    check_cases,
)
from tests.properties import naive
from tests.properties.comparing import difference
from tests.samples import sample
from tests.seeds import seed_blocks
from tidelog.logic.program import Program
from tidelog.reference import evaluate

MIXED = Shape(wide=0.3, floats=0.2, strings=0.3)
POSITIVE = replace(MIXED, negation=0.0, negated_groups=0.0, aggregates=0.0)


@pytest.mark.parametrize("seeds", seed_blocks(sample(60, 120), 20, offset=30_000))
def test_equals_naive_evaluation(seeds: range) -> None:
    def check(case: RandomCase) -> str | None:
        program = Program.parse(case.program)
        return difference(
            evaluate(program, case.facts), naive.evaluate(program, case.facts), "naive evaluation"
        )

    check_cases(seeds, check, replace(SMALL, wide=0.3))


@pytest.mark.parametrize("seeds", seed_blocks(sample(20, 50), 10, offset=31_000))
def test_order_does_not_matter(seeds: range) -> None:
    def check(case: RandomCase) -> str | None:
        random = Random(case.seed)
        other = replace(
            case,
            declarations=tuple(_shuffled(random, case.declarations)),
            rules=tuple(_reordered(random, rule) for rule in _shuffled(random, case.rules)),
        )
        # Lists of rows in another order, with repetitions.
        facts = {name: _shuffled(random, [*rows, *rows]) for name, rows in case.facts.items()}
        return difference(
            evaluate(Program.parse(case.program), case.facts),
            evaluate(Program.parse(other.program), dict(_shuffled(random, facts.items()))),
            f"another order:\n{other.program}",
        )

    check_cases(seeds, check, MIXED)


def _shuffled(random: Random, items):
    items = list(items)
    random.shuffle(items)
    return items


def _reordered(random: Random, rule: RuleText) -> RuleText:
    def inside(conjunct: Conjunct) -> Conjunct:
        if not isinstance(conjunct, Choice):
            return conjunct
        parts = _shuffled(random, conjunct.alternatives)
        return Choice(tuple(tuple(_shuffled(random, part)) for part in parts))

    body = tuple(inside(conjunct) for conjunct in _shuffled(random, rule.body))
    return RuleText(tuple(_shuffled(random, rule.heads)), body)


# The peers read the normal form. What becomes of disjunction, negated groups and several heads on
# the way there is checked here: against the same program written without them.


@pytest.mark.parametrize("seeds", seed_blocks(sample(30, 60), 10, offset=35_000))
def test_disjunction_and_several_heads_are_several_rules(seeds: range) -> None:
    def check(case: RandomCase) -> str | None:
        plain = replace(case, rules=tuple(r for rule in case.rules for r in _plain_rules(rule)))
        return difference(
            evaluate(Program.parse(case.program), case.facts),
            evaluate(Program.parse(plain.program), case.facts),
            f"plain rules:\n{plain.program}",
        )

    dense = replace(MIXED, disjunction=0.6, negated_groups=0.6, several_heads=0.4)
    check_cases(seeds, check, dense)


def _plain_rules(rule: RuleText) -> list[RuleText]:
    bodies = itertools.product(*map(_plain_conjunctions, rule.body))
    joined = [tuple(part for parts in body for part in parts) for body in bodies]
    return [RuleText((head,), body) for head in rule.heads for body in joined]


_OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def _plain_conjunctions(conjunct: Conjunct) -> tuple[tuple[str, ...], ...]:
    """Return the alternatives of a conjunct, each without disjunction and negated groups."""
    match conjunct:
        case Choice(alternatives):
            return alternatives
        case NotBoth(atom, (left, op, right), either):
            negated = f"!{atom}", f"{left} {_OPPOSITE[op]} {right}"
            return (negated,) if either else ((negated[0],), (negated[1],))
        case text:
            return ((text,),)


@pytest.mark.parametrize("seeds", seed_blocks(sample(20, 40), 10, offset=32_000))
def test_names_of_variables_do_not_matter(seeds: range) -> None:
    def check(case: RandomCase) -> str | None:
        names = sorted(set(re.findall(r"\b[vw]\d+\b", case.program)))
        # `?x` names, upper case, and words that mean something elsewhere.
        new = ["?x", "total", "count", "V", "x_1", "sum", "min", "setof", "input", "_y", "Range"]
        new += [f"n{i}" for i in range(len(names))]
        to = dict(zip(names, _shuffled(Random(case.seed), new), strict=False))
        text = re.sub(r"\b[vw]\d+\b", lambda found: to[found[0]], case.program)
        return difference(
            evaluate(Program.parse(case.program), case.facts),
            evaluate(Program.parse(text), case.facts),
            f"other names:\n{text}",
        )

    check_cases(seeds, check, MIXED)


@pytest.mark.parametrize("seeds", seed_blocks(sample(20, 40), 10, offset=33_000))
def test_derived_rows_of_a_positive_program_may_be_given(seeds: range) -> None:
    def check(case: RandomCase) -> str | None:
        program = Program.parse(case.program)
        model = evaluate(program, case.facts)
        random = Random(case.seed)
        some = {name: [r for r in rows if random.random() < 0.5] for name, rows in model.items()}
        part = {name: {*some[name], *case.facts.get(name, ())} for name in model}
        return difference(model, evaluate(program, model), "the model given") or difference(
            model, evaluate(program, part), "a part of the model given"
        )

    check_cases(seeds, check, POSITIVE)


@pytest.mark.parametrize("seeds", seed_blocks(30, 10, offset=34_000))
def test_more_facts_of_a_positive_program_never_remove_rows(seeds: range) -> None:
    def check(case: RandomCase) -> str | None:
        program = Program.parse(case.program)
        small = evaluate(program, case.facts)
        added = {
            name: rows | {row for epoch in case.epochs for row in epoch.get(name, ([], []))[0]}
            for name, rows in case.facts.items()
        }
        large = evaluate(program, added)
        lost = {name: small[name] - large[name] for name in small if small[name] - large[name]}
        return f"lost {lost}" if lost else None

    check_cases(seeds, check, POSITIVE)
