"""Constant folding: sums and products of known whole numbers are computed once.

`u <= t + hours(1)` has the product 1 * 3600000000. As a constant it makes the comparison a bound
(plan/bounds.py). What overflows is left as it is, so that the rule fails as it would have.
"""

from __future__ import annotations

import operator

from tidelog.logic import program as p
from tidelog.values.types import Kind, Type

_OPERATIONS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


def folded(op: str, args: tuple[p.Term, ...], type_: Type) -> p.Const | None:
    """Return the value of a functor of whole numbers; None if it is not known, or not a number."""
    if op not in _OPERATIONS or type_.kind is not Kind.NUMBER or len(args) != 2:
        return None
    known = [_known(arg) for arg in args]
    left, right = known
    if left is None or right is None:
        return None
    value = _OPERATIONS[op](left.value, right.value)
    return p.Const(value, type_) if -(2**63) <= value < 2**63 else None


def _known(term: p.Term) -> p.Const | None:
    match term:
        case p.Const(_, type_) if type_.kind is Kind.NUMBER:
            return term
        case p.Apply(op, args, type_):
            return folded(op, args, type_)
    return None
