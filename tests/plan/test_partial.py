"""Partial evaluation: the constants of readers are pushed down through rules."""

from __future__ import annotations

import pytest

from tidelog.logic.program import Program
from tidelog.plan.lower import lower
from tidelog.plan.lowered import Lowered
from tidelog.plan.partial import partially_evaluated

FAR = """
    .decl edge(x: symbol, y: symbol)
    .decl far(x: symbol, y: symbol)
    .decl v(x: symbol)
    far(x, y) :- edge(x, y).
"""


def shown(lowered: Lowered) -> list[str]:
    """Return the rules as text, with `r0`, `r1` .. for the relations that are new."""
    names: dict[str, str] = {}

    def name(relation: str) -> str:
        if "@where@" not in relation:
            return relation
        return names.setdefault(relation, f"r{len(names)}")

    texts = []
    for layer in reversed(lowered.layers):
        for rule in layer.rules:
            args = {slot: repr(constant.value) for slot, constant in rule.constants.items()}

            def atom(relation: str, slots: tuple[str | None, ...], args: dict[str, str]) -> str:
                values = ", ".join(args.get(slot or "", slot or "_") for slot in slots)
                return f"{name(relation)}({values})"

            body = ", ".join(
                "!" * each.negated + atom(each.relation, each.args, args) for each in rule.atoms
            )
            texts.append(f"{atom(rule.head.relation, rule.head.args, args)} :- {body}")
    return texts


def evaluated(program: str, *hidden: str) -> list[str]:
    lowered = lower(Program.parse(program))
    assert partially_evaluated(lowered, ()) is lowered
    return shown(partially_evaluated(lowered, hidden))


def test_a_constant_goes_with_a_recursion_that_passes_it_on() -> None:
    rules = FAR + 'far(x, z) :- far(x, y), edge(y, z). v(y) :- far("a", y), !far("b", y).'
    assert evaluated(rules, "far") == [
        "v(y) :- r0('a', y), !r1('b', y)",
        "r1('b', y) :- edge('b', y)",
        "r1('b', z) :- r1('b', y), edge(y, z)",
        "r0('a', y) :- edge('a', y)",
        "r0('a', z) :- r0('a', y), edge(y, z)",
    ]


@pytest.mark.parametrize(
    "rules",
    [
        'far(x, z) :- edge(x, y), far(y, z). v(y) :- far("a", y).',
        'v(y) :- far("a", y). v(y) :- far(y, _).',
        "v(y) :- far(y, y).",
    ],
)
def test_what_is_read_as_a_whole_stays_whole(rules: str) -> None:
    whole = evaluated(FAR + rules)
    assert evaluated(FAR + rules, "far") == whole


def test_constants_go_through_relations_and_drop_rules() -> None:
    rules = """
        .decl near(x: symbol, y: symbol, n: number)
        near(x, y, 1) :- far(x, y).
        near("b", y, 2) :- far(y, "c").
        near(x, y, n) :- near(y, x, n).
        v(x) :- near("b", x, 2).
    """
    assert evaluated(FAR + rules, "far", "near") == [
        "v(x) :- r0('b', x, 2)",
        "r0('b', y, 2) :- r1(y, 'c')",
        "r0('b', y, 2) :- r2(y, 'b', 2)",
        "r2('b', 'b', 2) :- r3('b', 'c')",
        "r2(x, 'b', 2) :- r0('b', x, 2)",
        "r3('b', 'c') :- edge('b', 'c')",
        "r1(x, 'c') :- edge(x, 'c')",
    ]
