"""Relations, record types and random values that the tests of `io` share."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from tidelog.logic.program import Relation
from tidelog.values.text import canonical_float
from tidelog.values.types import (
    BOOL,
    DATE,
    FLOAT,
    NUMBER,
    NUMBER_MAX,
    NUMBER_MIN,
    SYMBOL,
    TIMESTAMP,
    UNSIGNED,
    UNSIGNED_MAX,
    Field,
    Kind,
    Type,
    decimal_type,
    record_type,
    set_type,
)

LIST = record_type("List")
PAIR = record_type("Pair")
TREE = record_type("Tree")
UNIT = record_type("Unit")
RECORDS = {
    "List": (Field("head", NUMBER, "number"), Field("tail", LIST, "List")),
    "Pair": (Field("name", SYMBOL, "symbol"), Field("weight", FLOAT, "float")),
    "Tree": (Field("label", SYMBOL, "symbol"), Field("children", set_type(TREE), "set(Tree)")),
    "Unit": (),
}
SCALARS = [NUMBER, UNSIGNED, FLOAT, SYMBOL, BOOL, DATE, TIMESTAMP, decimal_type(9, 2)]
NESTED = [LIST, PAIR, TREE, UNIT, set_type(NUMBER), set_type(SYMBOL), set_type(set_type(FLOAT))]
TYPES = SCALARS + NESTED

SYMBOLS = st.text(
    st.one_of(st.sampled_from("ab,;\t\n\r \"'\\[]{}()|\ufeff0"), st.characters(codec="utf-8"))
)


def relation(*types: Type, name: str = "r") -> Relation:
    """Return a relation with columns `a`, `b`, ... of these types."""
    names = "abcdefgh"
    return Relation(name, tuple(Field(names[i], t, str(t)) for i, t in enumerate(types)))


def values(type: Type) -> st.SearchStrategy[Any]:
    """Return a strategy for values of `type`."""
    match type.kind:
        case Kind.NUMBER:
            return st.integers(NUMBER_MIN, NUMBER_MAX)
        case Kind.UNSIGNED:
            return st.integers(0, UNSIGNED_MAX)
        case Kind.FLOAT:
            return st.floats().map(canonical_float)
        case Kind.SYMBOL:
            return SYMBOLS
        case Kind.BOOL:
            return st.booleans()
        case Kind.DATE:
            return st.dates()
        case Kind.TIMESTAMP:
            return st.datetimes().map(lambda time: time.replace(fold=0))
        case Kind.DECIMAL:
            largest = 10**type.precision - 1
            scaled = st.integers(-largest, largest)
            return scaled.map(lambda i: Decimal(i).scaleb(-type.scale))
        case Kind.SET:
            assert type.element is not None
            return st.frozensets(values(type.element), max_size=4)
        case Kind.RECORD:
            return _records(type)


def _records(type: Type) -> st.SearchStrategy[Any]:
    if type is LIST:
        return st.recursive(st.none(), lambda tail: st.tuples(values(NUMBER), tail))
    if type is TREE:
        return st.recursive(
            st.none(), lambda child: st.tuples(SYMBOLS, st.frozensets(child, max_size=3))
        )
    fields = [values(field.type) for field in RECORDS[type.record]]
    return st.one_of(st.none(), st.tuples(*fields))


def rows(of: Relation, **size: int) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Return a strategy for lists of rows of a relation."""
    return st.lists(st.tuples(*(values(c.type) for c in of.columns)), **size)


def deep_list(depth: int) -> Any:
    """Return a list of `depth` cells 0, 1, ... as nested records."""
    cell: Any = None
    for head in reversed(range(depth)):
        cell = (head, cell)
    return cell


def day(text: str) -> datetime.date:
    return datetime.date.fromisoformat(text)
