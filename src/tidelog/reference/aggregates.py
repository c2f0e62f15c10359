"""What each aggregate computes from the values of its group.

`values` has one entry per assignment of the aggregate's variables, in the order of those variables.
Aggregates with a neutral element give it for an empty group (count and sum 0, setof the empty set,
concat the empty text); `min`, `max` and `mean` of nothing do not hold: they return NOTHING.
"""

from __future__ import annotations

from decimal import Decimal
from functools import reduce as fold
from typing import Any

from tidelog.io.tabular import checker
from tidelog.reference.functors import FunctorFailure, Records, fit_decimal, fit_integer
from tidelog.values.algebra import Group, Semigroup, SetFunction, UserAggregate
from tidelog.values.order import sort_key
from tidelog.values.ratios import exact_ratio
from tidelog.values.types import Kind, Type

NOTHING = object()  # None would not do: it is nil, which can be the least record of a group


def reduce(op: str, values: list[Any], type_: Type | None, result: Type, records: Records) -> Any:
    """Return the aggregate `op` of `values`, which are of `type_`; NOTHING if it does not hold."""
    match op:
        case "count":
            return len(values) if type_ is None else len(set(values))
        case "setof":
            return frozenset(values)
        case "concat":
            return "".join(values)
    assert type_ is not None
    match op:
        case "min" | "max":
            pick = min if op == "min" else max
            return pick(values, key=sort_key(type_, records)) if values else NOTHING
        case "mean":
            return exact_ratio(values, len(values)) if values else NOTHING
        case "total":
            return exact_ratio(values, 1)
        case "sum" if type_.kind is Kind.FLOAT:
            return exact_ratio(values, 1)
        case "sum" if type_.kind is Kind.DECIMAL:
            return fit_decimal(sum(values, Decimal(0)), result, f"the sum of {len(values)} values")
        case "sum":
            return fit_integer(sum(values), result, f"the sum of {len(values)} values")
    raise AssertionError(op)


def reduce_registered(aggregate: UserAggregate, values: list[Any], records: Records) -> Any:
    """Return an aggregate that is registered from Python; NOTHING of no values."""
    if not values:
        return NOTHING
    try:
        match aggregate.algebra:
            case SetFunction(function):
                result = function(frozenset(values))
            case Group(combine, lift=lift) | Semigroup(combine, lift=lift):
                result = fold(combine, values if lift is None else map(lift, values))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise FunctorFailure(f"aggregate `{aggregate.name}` failed: {reason}") from error
    try:
        return checker(aggregate.gives, records)(result)
    except ValueError as error:
        raise FunctorFailure(f"aggregate `{aggregate.name}` gave a wrong result: {error}") from None
