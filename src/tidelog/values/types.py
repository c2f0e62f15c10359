"""The types of columns, and which Python values they hold.

A declared type (`City`, a subtype of `symbol`) matters while a program is checked; what is stored
is its *representation*, a `Type`. Values outside the kernel are plain Python objects:

| type           | Python value                                                    |
| -------------- | --------------------------------------------------------------- |
| number         | `int` in [-2**63, 2**63)                                        |
| unsigned       | `int` in [0, 2**64)                                             |
| float          | `float`; -0.0 is stored as 0.0, and there is one NaN            |
| symbol         | `str`                                                           |
| bool           | `bool`                                                          |
| date           | `datetime.date`                                                 |
| timestamp      | `datetime.datetime` without a zone, microseconds, meant as UTC  |
| decimal(p, s)  | `decimal.Decimal` with exactly `s` digits after the point       |
| a record type  | `tuple` of its fields, or None for `nil`                        |
| set(t)         | `frozenset`                                                     |
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""The values of a row, column by column."""

NUMBER_MIN, NUMBER_MAX = -(2**63), 2**63 - 1
UNSIGNED_MAX = 2**64 - 1
MAX_DECIMAL_PRECISION = 18  # scaled decimals fit the kernel's int64


class Kind(enum.Enum):
    """The shape of a representation type."""

    NUMBER = "number"
    UNSIGNED = "unsigned"
    FLOAT = "float"
    SYMBOL = "symbol"
    BOOL = "bool"
    DATE = "date"
    TIMESTAMP = "timestamp"
    DECIMAL = "decimal"
    RECORD = "record"
    SET = "set"


@dataclass(frozen=True)
class Type:
    """A representation type. Only decimals, records and sets carry more than their kind."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    record: str = ""
    element: Type | None = None

    def __str__(self) -> str:
        match self.kind:
            case Kind.DECIMAL:
                return f"decimal({self.precision},{self.scale})"
            case Kind.RECORD:
                return self.record
            case Kind.SET:
                return f"set({self.element})"
            case _:
                return str(self.kind.value)


NUMBER = Type(Kind.NUMBER)
UNSIGNED = Type(Kind.UNSIGNED)
FLOAT = Type(Kind.FLOAT)
SYMBOL = Type(Kind.SYMBOL)
BOOL = Type(Kind.BOOL)
DATE = Type(Kind.DATE)
TIMESTAMP = Type(Kind.TIMESTAMP)

PRIMITIVES: dict[str, Type] = {
    t.kind.value: t for t in (NUMBER, UNSIGNED, FLOAT, SYMBOL, BOOL, DATE, TIMESTAMP)
}


def decimal_type(precision: int, scale: int) -> Type:
    """Return the type of decimals with `precision` digits, `scale` of them after the point."""
    return Type(Kind.DECIMAL, precision=precision, scale=scale)


def record_type(name: str) -> Type:
    """Return the type of records declared as `name`; its fields are in `Program.records`."""
    return Type(Kind.RECORD, record=name)


def set_type(element: Type) -> Type:
    """Return the type of sets of `element`."""
    return Type(Kind.SET, element=element)


@dataclass(frozen=True)
class Field:
    """A named column of a relation, or a named field of a record."""

    name: str
    type: Type
    declared: str
    """The type as the program wrote it, for messages and for printing."""
