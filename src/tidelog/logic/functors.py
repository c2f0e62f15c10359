"""The functors of the language: their names, how many arguments they take, which types.

Most functors fall into two groups. *Uniform* ones take arguments of one type and give the same type
(`x + y`). *Fixed* ones list the kinds they take and the type they give (`strlen`). Only `+` and `-`
do more: they also move dates and timestamps (logic/infer.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.values.functions import UserFunction
from tidelog.values.types import DATE, FLOAT, NUMBER, SYMBOL, TIMESTAMP, UNSIGNED, Kind, Type

INTEGERS = frozenset({Kind.NUMBER, Kind.UNSIGNED})
NUMERIC = INTEGERS | {Kind.FLOAT, Kind.DECIMAL}
SIGNED = NUMERIC - {Kind.UNSIGNED}
TEMPORAL = frozenset({Kind.DATE, Kind.TIMESTAMP})
ANYTHING = frozenset(Kind)
TEXT = frozenset({Kind.SYMBOL})


@dataclass(frozen=True)
class Uniform:
    """All arguments and the result have one type, of one of `kinds`."""

    op: str
    kinds: frozenset[Kind]
    least: int = 2
    most: int | None = 2


@dataclass(frozen=True)
class Fixed:
    """Arguments of the given kinds; `result` None means a type that the context decides."""

    op: str
    arguments: tuple[frozenset[Kind], ...]
    result: Type | None
    variadic: bool = False  # the last argument may be repeated


Signature = Uniform | Fixed

INFIX: dict[str, Uniform] = {
    "+": Uniform("add", NUMERIC),
    "-": Uniform("sub", NUMERIC),
    "*": Uniform("mul", NUMERIC),
    "/": Uniform("div", NUMERIC),
    "%": Uniform("mod", INTEGERS),
    "^": Uniform("pow", NUMERIC - {Kind.DECIMAL}),
    **{name: Uniform(name, INTEGERS) for name in ("band", "bor", "bxor", "land", "lor", "lxor")},
    **{name: Uniform(name, INTEGERS) for name in ("bshl", "bshr", "bshru")},
}
PREFIX: dict[str, Uniform] = {
    "-": Uniform("neg", SIGNED, 1, 1),
    "bnot": Uniform("bnot", INTEGERS, 1, 1),
    "lnot": Uniform("lnot", INTEGERS, 1, 1),
}

_N = frozenset({Kind.NUMBER})
_U = frozenset({Kind.UNSIGNED})
_F = frozenset({Kind.FLOAT})
_CONVERTIBLE = NUMERIC | TEXT

CALLS: dict[str, Signature] = {
    "min": Uniform("min", ANYTHING, 2, None),
    "max": Uniform("max", ANYTHING, 2, None),
    "cat": Fixed("cat", (TEXT, TEXT), SYMBOL, variadic=True),
    "strlen": Fixed("strlen", (TEXT,), NUMBER),
    "substr": Fixed("substr", (TEXT, _N, _N), SYMBOL),
    "ord": Fixed("ord", (TEXT,), NUMBER),
    "to_string": Fixed("to_string", (ANYTHING,), SYMBOL),
    "to_number": Fixed("to_number", (_CONVERTIBLE | TEMPORAL | {Kind.BOOL},), NUMBER),
    "to_unsigned": Fixed("to_unsigned", (_CONVERTIBLE,), UNSIGNED),
    "to_float": Fixed("to_float", (_CONVERTIBLE,), FLOAT),
    "to_date": Fixed("to_date", (TEXT | {Kind.TIMESTAMP},), DATE),
    "to_timestamp": Fixed("to_timestamp", (TEXT | {Kind.DATE},), TIMESTAMP),
    "to_decimal": Fixed("to_decimal", (_CONVERTIBLE,), None),
    # Soufflé's older names of the conversions between numbers.
    "itou": Fixed("to_unsigned", (_N,), UNSIGNED),
    "itof": Fixed("to_float", (_N,), FLOAT),
    "utoi": Fixed("to_number", (_U,), NUMBER),
    "utof": Fixed("to_float", (_U,), FLOAT),
    "ftoi": Fixed("to_number", (_F,), NUMBER),
    "ftou": Fixed("to_unsigned", (_F,), UNSIGNED),
}

MICROSECONDS = {
    "seconds": 1_000_000,
    "minutes": 60_000_000,
    "hours": 3_600_000_000,
    "days": 86_400_000_000,
}
"""`hours(2)` is short for `2 * 3600000000`: what timestamps are moved by."""

FUNCTOR_NAMES = frozenset(CALLS) | frozenset(MICROSECONDS) | {"range", "as"}

USAGE = {
    "min": "min(a, b, ..)",
    "max": "max(a, b, ..)",
    "cat": "cat(a, b, ..)",
    "strlen": "strlen(text)",
    "substr": "substr(text, start, length)",
    "ord": "ord(text)",
    "match": "match(pattern, text)",
    "contains": "contains(part, text)",
    "range": "range(start, stop) or range(start, stop, step)",
}
"""How functors are written, where the names of their arguments help; the others take one value."""

FALLIBLE = frozenset(
    [
        "add",
        "sub",
        "mul",
        "div",
        "mod",
        "pow",
        "neg",
        "to_number",
        "to_unsigned",
        "to_float",
        "to_date",
        "to_timestamp",
        "to_decimal",
    ]
)
"""Functors that fail on some values; `substr` and shifts are total."""


def is_fallible(op: str) -> bool:
    """Return whether a functor fails on some values. A function from Python may raise."""
    return op in FALLIBLE or isinstance(op, UserFunction)
