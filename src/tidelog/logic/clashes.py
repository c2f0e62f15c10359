"""What a type mistake says: types in words, and the likely fix.

A hint names the term: `to_number(w)`, not "convert one side".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

from tidelog.errors import did_you_mean
from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.lexer import AGGREGATES
from tidelog.lang.printer import format_string, format_term
from tidelog.logic import program as p
from tidelog.logic.cells import Cell, with_article
from tidelog.logic.functors import CALLS, FUNCTOR_NAMES, INTEGERS, NUMERIC, USAGE, Fixed
from tidelog.source import Span
from tidelog.values.types import NUMBER_MAX, NUMBER_MIN, UNSIGNED_MAX, Field, Kind, Type

LITERALS = {
    Kind.NUMBER: f"a `number` is between {NUMBER_MIN} and {NUMBER_MAX}",
    Kind.UNSIGNED: f"an `unsigned` is between 0 and {UNSIGNED_MAX}; a `number` may be negative",
    Kind.DECIMAL: "round the value, or declare the column with more digits",
    Kind.DATE: 'a `date` is written as in "2024-01-31"',
    Kind.TIMESTAMP: 'a `timestamp` is written as in "2024-01-31 23:59:59"',
    Kind.BOOL: "a `bool` is `true` or `false`",
}
"""How the literals of a type are written."""

TEMPORAL_SUM = (
    "a date is moved by days (`d + 7`), a timestamp by microseconds (`t + hours(2)`);"
    " `a - b` is the difference of two of them"
)
_MADE = re.compile(r"\$[0-9]")  # a variable made by normalisation; `$Circle` is a branch
STRING_KINDS = frozenset({Kind.SYMBOL, Kind.DATE, Kind.TIMESTAMP})
"""What a string literal can be."""
_CONVERSIONS = {
    Kind.SYMBOL: "to_string",
    Kind.FLOAT: "to_float",
    Kind.DECIMAL: "to_decimal",
    Kind.NUMBER: "to_number",
    Kind.UNSIGNED: "to_unsigned",
    Kind.DATE: "to_date",
    Kind.TIMESTAMP: "to_timestamp",
}
# Of two types, convert towards the one that loses nothing.
_WIDEST = (Kind.SYMBOL, Kind.FLOAT, Kind.DECIMAL, Kind.NUMBER, Kind.UNSIGNED)
_WORDS = {NUMERIC: "numbers", INTEGERS: "integers"}


@dataclass
class Draft:
    """A term whose type is being inferred; `make` builds the typed term afterwards."""

    cell: Cell
    make: Callable[[], p.Term]
    node: s.Term

    @property
    def shown(self) -> str:
        """Return the term as the user wrote it."""
        text = format_term(self.node)
        return "this" if _MADE.search(text) else f"`{text}`"


def is_text(*drafts: Draft) -> bool:
    """Return whether one of the terms is a string literal whose type is not known yet."""
    return any(
        d.cell.type is None and d.cell.kinds is not None and d.cell.kinds <= STRING_KINDS
        for d in drafts
    )


def check_nil(
    term: s.Term, type_: Type, records: Mapping[str, tuple[Field, ...]], diagnostics: Diagnostics
) -> None:
    """Report a `nil` where an algebraic data type is expected."""
    if not isinstance(term, s.NilLiteral):
        return
    branches = [part.name for part in records[type_.record] if part.name.startswith("$")]
    if branches:
        diagnostics.error(
            "bad-literal", f"`nil` is not a value of `{type_}`", term.span,
            f"its values are written {', '.join(f'`{b}`' for b in reversed(branches))}",
        )  # fmt: skip


def in_words(kinds: frozenset[Kind]) -> str:
    """Return kinds of types as a message names them.

    >>> in_words(frozenset({Kind.SYMBOL}))
    'a `symbol`'
    """
    if kinds in _WORDS:
        return _WORDS[kinds]
    return " or ".join(with_article(f"`{name}`") for name in sorted(kind.value for kind in kinds))


def hint_for(draft: Draft, wanted: Kind) -> str | None:
    """Return how the term could become one of kind `wanted`."""
    match draft.node:
        case s.StringLiteral(value) if wanted in NUMERIC:
            return f"numbers are written without quotes{f': {value}' if _is_number(value) else ''}"
        case s.StringLiteral("true" | "false" as value) if wanted is Kind.BOOL:
            return f"write it without quotes: {value}"
        case s.IntLiteral(text=text) | s.FloatLiteral(text=text) if wanted is Kind.SYMBOL:
            return f"write it in quotes: {format_string(text)}"
        case s.IntLiteral(text=text, unsigned=True) if wanted in NUMERIC:
            return f"write it without the `u`: {text.removesuffix('u')}"
        case s.FloatLiteral() if wanted in INTEGERS:
            return f"{with_article(f'`{wanted.value}`')} is a whole number"
        case s.Call("+") if wanted is Kind.SYMBOL:
            return "strings are joined with `cat(a, b)`"
        case s.NilLiteral() | s.RecordTerm():
            return "records only fit where a record type is declared"
        case s.IntLiteral() | s.FloatLiteral() | s.StringLiteral():
            return LITERALS.get(wanted)
    conversion = _conversion(draft, wanted)
    return f"convert it: {conversion}" if conversion is not None else None


def _conversion(draft: Draft, wanted: Kind) -> str | None:
    """Return the functor call that makes the term one of kind `wanted`, if there is one."""
    known = draft.cell.type
    if known is None or wanted not in _CONVERSIONS:
        return None
    functor = _CONVERSIONS[wanted]
    signature = CALLS[functor]
    if not isinstance(signature, Fixed) or known.kind not in signature.arguments[0]:
        return None
    text = format_term(draft.node)
    return f"`{functor}({'x' if '$' in text else text})`"


def mismatch(place: str, wanted: Type, draft: Draft) -> Callable[[], str]:
    """Return the message for a term that does not fit its place."""
    shown = with_article(f"`{wanted}`")
    return lambda: f"{place} is {shown}, but {draft.shown} is {draft.cell.describe()}"


def hint_between(a: Draft, b: Draft) -> str | None:
    """Return how one of two terms could get the type of the other."""
    literals = s.IntLiteral | s.FloatLiteral | s.StringLiteral
    for one, other in ((b, a), (a, b)):
        if isinstance(one.node, literals) and other.cell.type is not None:
            return hint_for(one, other.cell.type.kind)
    kinds = [d.cell.type.kind if d.cell.type is not None else None for d in (a, b)]
    for wanted in _WIDEST:
        if wanted in kinds:
            conversion = _conversion(b if kinds[0] is wanted else a, wanted)
            return f"convert one side: {conversion}" if conversion is not None else None
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii()


def needs_one_type(name: str, a: Draft, b: Draft) -> Callable[[], str]:
    """Return the message for two arguments of `name` that should have one type."""
    return lambda: (
        f"`{name}` needs one type, but {a.shown} is {a.cell.describe()}"
        f" and {b.shown} is {b.cell.describe()}"
    )


def known_functors() -> str:
    """Return a hint that lists all functors."""
    # Without Soufflé's older names: they are accepted, but not recommended.
    older = {name for name, signature in CALLS.items() if signature.op != name}
    return f"the functors are {', '.join(sorted(FUNCTOR_NAMES - older))}"


def unknown_functor(
    name: str, functions: Iterable[str], relations: Container[str], aggregates: Container[str]
) -> str:
    """Return what is likely meant by a functor that does not exist."""
    if name in relations:
        return f"`{name}` is a relation: use it as a condition of its own"
    if name in AGGREGATES or name in aggregates:
        return f"an aggregate is written `{name} x : {{ conditions }}`"
    if name.startswith("@"):
        return f"register it from Python: `tidelog.function({name[1:]!r}, f, types)`"
    guess = did_you_mean(name, [*FUNCTOR_NAMES, *functions])
    return guess or f"{known_functors()}; or register it from Python with `tidelog.function`"


def wrong_arity(
    name: str, given: int, least: int, most: int | None, span: Span
) -> tuple[str, Span, str]:
    """Return what is wrong with the number of a functor's arguments, where, and its usage."""
    wanted = f"{least}" if least == most else f"at least {least}"
    usage = USAGE.get(name, f"{name}({', '.join(['value'] * least)})")
    message = f"`{name}` takes {wanted} argument{'s' * (wanted != '1')}, not {given}"
    return message, span, f"it is written {usage}"
