"""Which functors the kernel computes during a join, and which Python computes between two joins.

The kernel works on ordinals (kernel/machine.py). Python computes text, new dictionary entries, and
arithmetic wider than 64 bits, on batches of rows. The functions themselves are in join/functors/.
"""

from __future__ import annotations

from tidelog.values.types import Kind, Type

UNORDERED = frozenset({Kind.SYMBOL, Kind.RECORD, Kind.SET})
"""Kinds whose ordinals are dictionary ids, and so not in the order of their values."""

_PLAIN = frozenset({Kind.NUMBER, Kind.UNSIGNED, Kind.FLOAT})
_MOVES = frozenset({Kind.DATE, Kind.TIMESTAMP, Kind.DECIMAL})
_ARITHMETIC = frozenset({"add", "sub", "mul", "div", "mod", "pow", "neg"})
_BITS = frozenset(
    {"band", "bor", "bxor", "bnot", "bshl", "bshr", "bshru", "land", "lor", "lxor", "lnot"}
)
_CONVERSIONS = frozenset({"to_number", "to_unsigned", "to_float"})


def needs_python(op: str, types: tuple[Type, ...], result: Type) -> bool:
    """Return whether Python computes the functor `op` on arguments of `types`."""
    kinds = {t.kind for t in types}
    if op in _BITS:
        return False
    if op in ("min", "max"):
        return bool(kinds & UNORDERED)
    if op in _CONVERSIONS:
        return not kinds <= _PLAIN | {Kind.BOOL, Kind.DATE, Kind.TIMESTAMP}
    if op in _ARITHMETIC:
        if kinds & _MOVES:
            return op not in ("add", "sub", "neg")
        return op == "pow" and result.kind is Kind.FLOAT
    return True
