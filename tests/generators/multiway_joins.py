"""Random joins of several atoms, mostly cyclic, with negation and conditions, and epochs."""

from __future__ import annotations

import random
from typing import Any

from tests.generators.programs import Declaration, Epoch, RandomCase, Row, RuleText

_BASE = {"e": 2, "g": 2, "i": 3, "r": 1}
_CYCLES = (
    "e(x, y), e(y, z), e(x, z)",
    "e(x, y), g(y, z), e(z, w), g(w, x)",
    "g(x, z), e(y, z), i(x, y, z), r(z)",
    "e(x, y), g(y, x), r(x)",
)


def multiway_case(seed: int) -> RandomCase:
    """Return one to three views over base relations, sometimes one over another, and epochs."""
    rng = random.Random(seed)
    kind = rng.choice(("number", "number", "number", "symbol", "float", "unsigned"))
    is_wide = kind == "number" and rng.random() < 0.2
    declared = [Declaration(name, (kind,) * arity) for name, arity in _BASE.items()]
    rules: list[RuleText] = []
    has_subset = rng.random() < 0.4  # a subset of e
    if has_subset:
        declared.append(Declaration("s", (kind,) * 2))
        rules.append(RuleText(("s(x, y)",), ("e(x, y)", rng.choice(("r(y)", "g(y, x)", "!r(x)")))))
    for number in range(rng.randint(1, 3)):
        columns, body = _rule(rng, kind, has_subset=has_subset)
        declared.append(Declaration(f"v{number}", (kind,) * len(columns)))
        rules.append(RuleText((f"v{number}({', '.join(columns)})",), tuple(body)))
        if rng.random() < 0.4:  # another rule for the same view
            while True:
                more, body = _rule(rng, kind, has_subset=has_subset)
                if len(more) >= len(columns):
                    break
            head = f"v{number}({', '.join(more[: len(columns)])})"
            rules.append(RuleText((head,), tuple(body)))
    if rng.random() < 0.4:
        width = len(declared[-1].types)
        args = ", ".join(rng.choice("abc") for _ in range(width))
        declared.append(Declaration("w", (kind,)))
        rules.append(
            RuleText((f"w({args[0]})",), (f"{declared[-2].name}({args})", f"e({args[0]}, b)"))
        )

    def value() -> Any:
        if is_wide and rng.random() < 0.1:
            return rng.choice((2**63 - 1, -(2**63), 2**62, -1))
        number = rng.randint(0, 7)
        if kind == "symbol":
            return "abcdefgh"[number]
        return float(number) if kind == "float" else number

    def rows(name: str, most: int) -> list[Row]:
        return [tuple(value() for _ in range(_BASE[name])) for _ in range(rng.randint(0, most))]

    facts = {name: frozenset(rows(name, 30)) for name in _BASE}
    current = {name: set(facts[name]) for name in facts}
    epochs: list[Epoch] = []
    for _ in range(8):
        epoch: dict[str, Any] = {}
        for name in _BASE:
            if rng.random() < 0.5:
                known = sorted(current[name])
                inserted = rows(name, 4)
                deleted = rng.sample(known, min(len(known), rng.randint(0, 4)))
                epoch[name] = (inserted, deleted)
                current[name] -= set(deleted) - set(inserted)
                current[name] |= set(inserted) - set(deleted)
        epochs.append(epoch)
    return RandomCase(seed, tuple(declared), tuple(rules), facts, tuple(epochs))


def _rule(rng: random.Random, kind: str, *, has_subset: bool) -> tuple[list[str], list[str]]:
    """Return the columns of a head and a body. `s` is a subset of `e`, if there is one."""
    if rng.random() < 0.4:
        body = rng.choice(_CYCLES).replace("), ", ");").split(";")
        used = sorted({c for atom in body for c in atom if c in "xyzw"} & set("xyzw"))
        used = [c for c in used if any(c in atom.partition("(")[2] for atom in body)]
    else:
        body, used = [], []
        for _ in range(rng.randint(2, 4)):
            name = rng.choice(list(_BASE))
            args = ["_" if rng.random() < 0.1 else rng.choice("xyzw") for _ in range(_BASE[name])]
            if kind == "number" and rng.random() < 0.1:
                args[rng.randrange(len(args))] = str(rng.randint(0, 7))
            used += [arg for arg in args if arg in "xyzw" and arg not in used]
            body.append(f"{name}({', '.join(args)})")
        if not used:
            body.append("r(x)")
            used.append("x")
    if rng.random() < 0.35:
        name = rng.choice(list(_BASE))
        body.append(f"!{name}({', '.join(rng.choice(used) for _ in range(_BASE[name]))})")
    edges = [atom for atom in body if atom.startswith("e(") and "_" not in atom]
    if has_subset and edges and rng.random() < 0.6:
        body.append(f"!s{rng.choice(edges)[1:]}")
    if rng.random() < 0.3:
        body.append(f"{rng.choice(used)} {rng.choice(('<', '<=', '!='))} {rng.choice(used)}")
    if kind == "number" and rng.random() < 0.3:
        other = rng.choice((str(rng.randint(0, 7)), f"{rng.choice(used)} + {rng.randint(-3, 3)}"))
        body.append(f"{rng.choice(used)} {rng.choice(('<', '<=', '>', '>='))} {other}")
    columns = rng.sample(used, rng.randint(1, len(used)))
    if kind == "number" and rng.random() < 0.25:
        body.append(f"s = {rng.choice(used)} {rng.choice('+*%')} {rng.choice(used)}")
        if rng.random() < 0.5:
            body.append(f"{rng.choice(('r', '!r'))}(s)")
        else:
            columns.append("s")
    return columns, body
