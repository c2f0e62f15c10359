"""Proofs, and what is missing, as values for `json.dumps`.

A row of a proof is an object in `rows`; others refer to it by its number, so that a row that is
used twice is written once. Values that JSON does not have are written as text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tidelog.proof.gaps import (
    BlockingRow,
    FailedComputation,
    FailedCondition,
    Gap,
    HeldStep,
    MissingRow,
    NotKept,
    OtherAggregate,
    OtherHead,
    RowHeld,
    RuleGap,
    WhyNot,
)
from tidelog.proof.tree import Absence, AggregateTaken, ConditionHeld, Premise, Proof
from tidelog.proof.words import AnyValue

_Json = dict[str, Any]


def proof_json(proof: Proof) -> _Json:
    """Return a proof: its rows, the proved one first."""
    numbers = {id(node): number for number, node in enumerate(proof.nodes())}
    return {"proof": 0, "rows": [_node(node, numbers) for node in proof.nodes()]}


def why_not_json(found: WhyNot) -> _Json:
    """Return what is missing for a row."""
    shown: _Json = {"relation": found.relation, "row": _row(found.pattern), "text": found.text}
    if found.proof is not None:
        return {**shown, "present": True, **proof_json(found.proof)}
    if found.not_kept:
        shown["not kept"] = found.not_kept
    return {**shown, "present": False, "rules": [_rule_gap(gap) for gap in found.rules]}


def _node(proof: Proof, numbers: Mapping[int, int]) -> _Json:
    shown: _Json = {
        "relation": proof.relation,
        "row": _row(proof.row),
        "text": proof.text,
        "origin": proof.origin,
    }
    if proof.span is not None:
        shown["position"] = str(proof.span)
    if proof.rule is not None:
        shown["rule"] = proof.rule.text
        shown["values"] = _values(proof.values)
        shown["steps"] = [
            {"row": numbers[id(step.proof)]} if isinstance(step, Premise) else _step(step)
            for step in proof.steps
        ]
    return shown


def _step(step: Absence | ConditionHeld | AggregateTaken) -> _Json:
    match step:
        case Absence(relation, pattern):
            return {"absent": relation, "row": _row(pattern), "text": step.text}
        case ConditionHeld():
            return {"condition": step.text, "text": step.with_values}
        case AggregateTaken(text, value, _, size, first):
            rows = [list(parts) for parts in first]
            return {"aggregate": text, "value": _value(value), "size": size, "first": rows}


def _rule_gap(found: RuleGap) -> _Json:
    return {
        "rule": found.rule.text,
        "position": str(found.span),
        "values": _values(found.values),
        "held": [_held(step) for step in found.held],
        "gap": _gap(found.gap),
        "untried": list(found.untried),
        "complete": found.is_complete,
    }


def _held(step: HeldStep) -> _Json:
    if isinstance(step, RowHeld):
        return {"relation": step.relation, "row": _row(step.row), "text": step.text}
    return _step(step)


def _gap(gap: Gap) -> _Json:
    match gap:
        case MissingRow(relation, pattern, text, deeper):
            shown = {"missing": relation, "row": _row(pattern), "text": text}
            return shown if deeper is None else {**shown, "because": why_not_json(deeper)}
        case BlockingRow(relation, row, text):
            return {"blocking": relation, "row": _row(row), "text": text}
        case FailedCondition(text, with_values):
            return {"false": text, "text": with_values}
        case OtherAggregate(text, wanted, value_text):
            return {"aggregate": text, "wanted": wanted, "value": value_text}
        case FailedComputation(text, reason):
            return {"uncomputable": text, "reason": reason}
        case OtherHead(text):
            return {"head": text}
        case NotKept(text):
            return {"not kept": text}


def _values(values: Mapping[str, Any]) -> _Json:
    return {name: _value(value) for name, value in values.items()}


def _row(row: tuple[Any, ...]) -> list[Any]:
    return [_value(value) for value in row]


def _value(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case tuple():
            return _row(value)
        case frozenset():
            return sorted(map(_value, value), key=repr)
        case AnyValue():
            return {"any": str(value)}
        case _:
            return str(value)
