"""Random joins with inequalities: acyclic and cyclic, with and without projection, and epochs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from tests.generators.programs import Declaration, Epoch, RandomCase, Row, RuleText

_BASE = {"r": 2, "s": 2, "t": 3, "p": 1}
_COMPARISONS = ("<", "<=", ">", ">=", "<", "<=", "!=")


def inequality_case(seed: int) -> RandomCase:
    """Return one or two views over base relations, sometimes read by a third, and epochs."""
    rng = random.Random(seed)
    kind = rng.choice(("number", "number", "number", "float", "timestamp", "unsigned", "symbol"))
    is_wide = kind == "number" and rng.random() < 0.15
    declared = [Declaration(name, (kind,) * arity) for name, arity in _BASE.items()]
    rules: list[RuleText] = []
    for number in range(rng.randint(1, 2)):
        united = list(_united(rng, kind))
        declared.append(Declaration(f"v{number}", (kind,) * len(united[0][0])))
        for columns, body in united:
            rules.append(RuleText((f"v{number}({', '.join(columns)})",), tuple(body)))
    width = len(declared[-1].types)
    view = declared[-1].name
    reader = rng.random()
    args = [f"x{i}" for i in range(width)]
    if reader < 0.2:
        declared.append(Declaration("n", (kind, "number")))
        body = (f"p(k), c = count : {{ {view}({', '.join(['k', *'_' * (width - 1)])}) }}",)
        rules.append(RuleText(("n(k, c)",), body))
    elif reader < 0.35:
        declared.append(Declaration("w", (kind,)))
        rules.append(RuleText((f"w({args[0]})",), (f"{view}({', '.join(args)})", f"!p({args[0]})")))
    elif reader < 0.45:
        declared.append(Declaration("w", (kind,)))
        rules.append(RuleText(("w(k)",), ("p(k)", f"!{view}({', '.join(['k'] * width)})")))
    elif reader < 0.55 and kind in ("number", "float"):
        declared.append(Declaration("n", (kind, kind)))
        inside = ", ".join(["k", *args[1:]])
        body = (f"p(k), c = sum {args[-1] if width > 1 else 'k'} : {{ {view}({inside}) }}",)
        rules.append(RuleText(("n(k, c)",), body))

    def value() -> Any:
        if is_wide and rng.random() < 0.1:
            return rng.choice((2**63 - 1, -(2**63), 2**62))
        number = rng.randint(0, 8)
        if kind == "timestamp":
            return _TIMES[number]
        if kind == "symbol":
            return "heidcbgfa"[number]  # in another order than their dictionary ids
        return float(number) if kind == "float" else number

    def rows(name: str, most: int) -> list[Row]:
        arity = next(len(d.types) for d in declared if d.name == name)
        return [tuple(value() for _ in range(arity)) for _ in range(rng.randint(0, most))]

    facts = {name: frozenset(rows(name, 12)) for name in _BASE}
    current = {name: set(facts[name]) for name in facts}
    epochs: list[Epoch] = []
    given = [
        d.name for d in declared if d.name in _BASE or (d.name[0] == "v" and rng.random() < 0.2)
    ]
    for _ in range(6):
        epoch: dict[str, Any] = {}
        for name in given:
            if rng.random() < 0.6:
                known = sorted(current.get(name, ()))
                inserted = rows(name, 4)
                deleted = rng.sample(known, min(len(known), rng.randint(0, 4)))
                deleted += rows(name, 1)
                epoch[name] = (inserted, deleted)
                now = current.setdefault(name, set())
                now -= set(deleted) - set(inserted)
                now |= set(inserted) - set(deleted)
        epochs.append(epoch)
    return RandomCase(seed, tuple(declared), tuple(rules), facts, tuple(epochs))


def _times() -> list[Any]:
    from datetime import datetime, timedelta

    start = datetime(2026, 1, 1)
    return [start + timedelta(minutes=20 * i) for i in range(9)]


_TIMES = _times()


def _united(rng: random.Random, kind: str) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the rules of a view: mostly one, sometimes two or three that may share rows."""
    first, body = _join(rng, kind)
    size = 1 if rng.random() < 0.6 else rng.choice((2, 2, 3))
    # The heads differ in a constant now and then. Then the rules share no rows.
    is_tagged = size > 1 and kind == "number" and rng.random() < 0.25
    yield [*first, *(["0"] if is_tagged else [])], body
    for number in range(1, size):
        for _ in range(50):
            columns, body = _join(rng, kind)
            if len(columns) == len(first):
                yield [*columns, *([f"{number}"] if is_tagged else [])], body
                break


def _join(rng: random.Random, kind: str) -> tuple[list[str], list[str]]:
    """Return the columns of a head and a body."""
    if rng.random() < 0.4:
        return _chain(rng)
    fresh = iter("abcdefghi")
    body: list[str] = []
    used: list[str] = []
    atoms: list[list[str]] = []
    for _ in range(rng.choice((1, 2, 2, 2, 3, 3))):
        name = rng.choice(list(_BASE))
        args = []
        for _ in range(_BASE[name]):
            if rng.random() < 0.12:
                args.append("_")
            elif used and rng.random() < 0.3:
                args.append(rng.choice(used))
            else:
                args.append(next(fresh))
        atoms.append([arg for arg in args if arg != "_"])
        used += [arg for arg in atoms[-1] if arg not in used]
        body.append(f"{name}({', '.join(args)})")
    if not used:
        body.append("p(a)")
        used.append("a")
        atoms.append(["a"])
    atoms = [atom for atom in atoms if atom]
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        one, two = rng.sample(atoms, 2) if len(atoms) > 1 else (atoms[0], atoms[0])
        left, right = rng.choice(one), rng.choice(two)
        if rng.random() < 0.4 and kind not in ("unsigned", "symbol"):
            right = f"{right} {rng.choice('+-')} {_step(rng, kind)}"
        if rng.random() < 0.5:
            left, right = right, left
        body.append(f"{left} {rng.choice(_COMPARISONS)} {right}")
    if rng.random() < 0.15:
        body.append(f"{rng.choice(used)} = {rng.choice(used)}")
    if rng.random() < 0.5:
        columns = list(used)
        rng.shuffle(columns)
    else:
        columns = rng.sample(used, rng.randint(1, len(used)))
    if kind == "number" and rng.random() < 0.15:
        columns[rng.randrange(len(columns))] = f"{rng.choice(used)} + {rng.choice([*used, '1'])}"
    return columns, body


def _chain(rng: random.Random) -> tuple[list[str], list[str]]:
    """Return a chain of comparisons of which the head has the beginning: semi-joins."""
    names = [rng.choice(("r", "s", "t")) for _ in range(rng.randint(2, 4))]
    key = rng.choice(("k", "_"))
    body, last = [], ""
    for number, name in enumerate(names):
        args = [key, f"x{number}"] if rng.random() < 0.8 else ["_", f"x{number}"]
        if name == "t":
            args.append("_" if rng.random() < 0.7 or number else "y")
        body.append(f"{name}({', '.join(args)})")
        if last:
            body.append(f"{last} {rng.choice(_COMPARISONS[:-1])} x{number}")
        last = f"x{number}"
    columns = ["x0"]
    if "k" in "".join(body[0]):
        columns.insert(rng.randint(0, 1), "k")
    if "y" in body[0]:
        columns.append("y")
    return columns, body


def _step(rng: random.Random, kind: str) -> str:
    number = rng.randint(1, 3)
    if kind == "timestamp":
        return f"minutes({20 * number})"
    return f"{number}.0" if kind == "float" else str(number)
