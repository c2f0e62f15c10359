"""Facts of the program become one rule for each relation, however many there are."""

from __future__ import annotations

from tidelog.logic.program import Program
from tidelog.plan.body import copied_columns
from tidelog.plan.lower import lower


def test_one_rule_for_all_facts_of_a_relation() -> None:
    facts = "".join(f"p({i}, {i % 3}). " for i in range(100))
    lowered = lower(Program.parse(f".decl p(x: number, y: number) {facts} .decl q() q()."))
    assert lowered.facts["p@facts"] == [(i, i % 3) for i in range(100)]
    assert lowered.facts["q@facts"] == [()]
    rules = {rule.head.relation: rule for layer in lowered.layers for rule in layer.rules}
    assert sum(len(layer.rules) for layer in lowered.layers) == 2
    assert copied_columns(rules["p"]) == (0, 1)
    assert [atom.relation for atom in rules["q"].atoms] == ["q@facts"]


def test_without_facts_there_is_no_rule() -> None:
    lowered = lower(Program.parse(".decl p(x: number) .decl q(x: number) q(x) :- p(x)."))
    assert not lowered.facts
    assert [name for name in lowered.relations if "@" in name] == []
