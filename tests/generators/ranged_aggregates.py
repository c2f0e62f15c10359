"""Random aggregates over inequality joins: of ranges, of nearest partners, and some of neither."""

from __future__ import annotations

import random
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.generators.programs import Declaration, Epoch, RandomCase, Row, RuleText

_BASE = {"r": 2, "s": 2, "t": 3, "p": 1}
_COMPARISONS = ("<", "<=", ">", ">=")
_START = datetime(2026, 1, 1)


def ranged_case(seed: int) -> RandomCase:
    """Return one to three views with aggregates over joins of base relations, and epochs."""
    rng = random.Random(seed)
    kind = rng.choice(
        ("number", "number", "number", "float", "timestamp", "unsigned", "decimal(6,2)")
    )
    is_wide = kind == "number" and rng.random() < 0.25
    declared = [Declaration(name, (kind,) * arity) for name, arity in _BASE.items()]
    rules: list[RuleText] = []
    for number in range(rng.randint(1, 3)):
        head, types, body = _view(rng, kind)
        declared.append(Declaration(f"v{number}", types))
        rules.append(RuleText((f"v{number}({', '.join(head)})",), tuple(body)))

    def value() -> Any:
        if is_wide and rng.random() < 0.2:
            return rng.choice((2**63 - 1, -(2**63), 2**62, 2**63 - 3, 2 - 2**63))
        number = rng.randint(0, 9)
        match kind:
            case "timestamp":
                return _START + timedelta(minutes=20 * number)
            case "float":
                return float(number)
            case "decimal(6,2)":
                return Decimal(number) / 4
        return number

    def rows(name: str, most: int) -> list[Row]:
        return [
            (
                value() if rng.random() < 0.3 else _few(rng, kind),
                *(value() for _ in range(_BASE[name] - 1)),
            )
            for _ in range(rng.randint(0, most))
        ]

    facts = {name: frozenset(rows(name, 14)) for name in _BASE}
    current = {name: set(facts[name]) for name in facts}
    epochs: list[Epoch] = []
    for _ in range(6):
        epoch: dict[str, Any] = {}
        for name in _BASE:
            if rng.random() < 0.5:
                known = sorted(current[name])
                inserted = rows(name, 4)
                deleted = rng.sample(known, min(len(known), rng.randint(0, 4)))
                deleted += rows(name, 1)
                epoch[name] = (inserted, deleted)
                current[name] -= set(deleted) - set(inserted)
                current[name] |= set(inserted) - set(deleted)
        epochs.append(epoch)
    return RandomCase(seed, tuple(declared), tuple(rules), facts, tuple(epochs))


def _few(rng: random.Random, kind: str) -> Any:
    """Return one of two values, so that keys meet."""
    number = rng.randint(1, 2)
    match kind:
        case "timestamp":
            return _START + timedelta(minutes=20 * number)
        case "float":
            return float(number)
        case "decimal(6,2)":
            return Decimal(number) / 4
    return number


def _view(rng: random.Random, kind: str) -> tuple[list[str], tuple[str, ...], list[str]]:
    """Return the arguments of a head, their types and a body."""
    style = rng.random()
    key = rng.choice(("k", "k", "k", "_"))
    partner = rng.choice((f"s({key}, y)", f"s({key}, y)", f"t({key}, y, _)", f"t({key}, y, z)"))
    inside = [partner]
    group, outside = ["k", "x"], ["r(k, x)"]
    if style < 0.25:
        group, outside = ["k"], ["p(k)"]
        inside.insert(rng.randint(0, 1), "r(k, x)")
    elif style < 0.4:
        group, outside = [], []
        inside.insert(rng.randint(0, 1), rng.choice(("r(k, x)", "r(_, x)")))
    elif style < 0.5:
        group, outside = ["x"], ["p(x)"]
        inside = [partner.replace("k", rng.choice("_3j"))] if kind == "number" else inside
        if kind != "number":
            inside = [partner.replace("k", "_")]
    elif style < 0.6:
        group, outside = ["k", "x", "w"], ["t(k, x, w)"]
    inside += [_bound(rng, kind) for _ in range(rng.choice((1, 1, 1, 2, 2)))]
    if rng.random() < 0.25:
        inside.append(f"{rng.choice('xy')} {rng.choice(('!=', '>', '<='))} {_constant(rng, kind)}")
    if "z)" in partner and rng.random() < 0.5:
        inside.append(f"z {rng.choice(_COMPARISONS)} {_constant(rng, kind)}")
    if rng.random() < 0.1:
        inside.append("r(y, _)")
    types = [kind] * len(group)
    head = list(group)
    body = list(outside)
    for number in range(rng.choice((1, 1, 1, 2))):
        op, result = rng.choice(_operations(kind))
        has_x = any(atom.endswith("x)") for atom in inside)
        target = rng.choice(("y", "y", "x" if has_x else "y", "z" if "z)" in partner else "y"))
        name = f"m{number}"
        braces = ", ".join(inside)
        body.append(
            f"{name} = count : {{ {braces} }}" if op == "count"
            else f"{name} = {op} {target} : {{ {braces} }}"
        )  # fmt: skip
        head.append(name)
        types.append(result)
    if kind == "number" and rng.random() < 0.15:
        body.append(f"m0 {rng.choice(('<', '!='))} {rng.randint(0, 9)}")
    return head, tuple(types), body


def _operations(kind: str) -> list[tuple[str, str]]:
    """Return aggregates that a kind has, with the types of their results."""
    found = [("max", kind), ("max", kind), ("min", kind), ("min", kind), ("count", "number")]
    if kind != "timestamp":
        found += [("sum", kind), ("sum", kind), ("mean", "float"), ("total", "float")]
    return found


def _bound(rng: random.Random, kind: str) -> str:
    left, right = "y", "x"
    if rng.random() < 0.35 and kind not in ("unsigned", "decimal(6,2)"):
        moved = f"{rng.choice('+-')} {_step(rng, kind)}"
        if rng.random() < 0.7:
            right = f"{right} {moved}"
        else:
            left = f"{left} {moved}"
    if rng.random() < 0.3:
        left, right = right, left
    return f"{left} {rng.choice(_COMPARISONS)} {right}"


def _step(rng: random.Random, kind: str) -> str:
    number = rng.randint(1, 4)
    if kind == "timestamp":
        return f"minutes({20 * number})"
    return f"{number}.0" if kind == "float" else str(number)


def _constant(rng: random.Random, kind: str) -> str:
    number = rng.randint(1, 7)
    match kind:
        case "timestamp":
            return f'"2026-01-01 0{number // 3}:{20 * (number % 3):02}:00"'
        case "float":
            return f"{number}.0"
    return str(number)
