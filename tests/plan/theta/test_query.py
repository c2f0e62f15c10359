"""Rules as queries with theta joins."""

from __future__ import annotations

import pytest

from tidelog.logic.program import Program
from tidelog.plan.body import LoweredRule
from tidelog.plan.lower import lower
from tidelog.plan.theta.query import theta_query

DECLARED = """
.decl r(a: number, t: number)
.decl s(a: number, u: number)
.decl v(a: number, x: number)
"""


def rule(text: str) -> LoweredRule:
    """Return the lowered form of a rule for `v`."""
    lowered = lower(Program.parse(DECLARED + text))
    (found,) = [r for layer in lowered.layers for r in layer.rules if r.head.relation == "v"]
    return found


def sets(text: str) -> tuple[list[str], str, list[str]]:
    """Return atoms, output and predicates of a rule as sets of variables."""
    query = theta_query(rule(text))
    assert query is not None
    shown = ["".join(sorted(v for v in atom if v[0] != "_")) for atom in query.atoms]
    predicates = ["".join(sorted(p.variables)) for p in query.predicates]
    return shown, "".join(sorted(query.output)), sorted(predicates)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("v(a, t) :- r(a, t), s(a, u), t < u.", (["at", "au"], "at", ["tu"])),
        ("v(a, t) :- r(a, t), s(b, u), u <= t + a * 2.", (["at", "bu"], "at", ["atu"])),
        ("v(a, t) :- r(a, t), r(b, t), a != b, t > 5.", (["at", "bt"], "at", ["ab", "t"])),
        ("v(a, x) :- r(a, t), s(a, u), x = t + u.", (["at", "au"], "atu", [])),
        ("v(a, t) :- r(a, t), s(a, 7).", (["at", "a"], "at", [])),
        ("v(a, t) :- r(a, t), s(u, _), u = t + 1.", (["at", "u"], "at", ["tu"])),
    ],
)
def test_rules(text: str, found: tuple[list[str], str, list[str]]) -> None:
    assert sets(text) == found


@pytest.mark.parametrize(
    ("text", "joins"),
    [
        ("v(a, t) :- r(a, t), s(a, u), t < u.", True),
        ("v(a, t) :- r(a, t), s(a, u), t < a.", False),
        ("v(a, t) :- r(a, t), s(a, u).", False),
    ],
)
def test_what_joins_by_inequality(text: str, joins: bool) -> None:
    query = theta_query(rule(text))
    assert query is not None
    assert query.joins_by_inequality == joins


def test_other_rules() -> None:
    assert theta_query(rule("v(a, t) :- r(a, t), !s(a, t).")) is None
    assert theta_query(rule("v(a, x) :- r(a, t), x = range(0, t).")) is None
