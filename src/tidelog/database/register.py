"""Aggregates from Python: registered by name, then used in programs like built-in ones.

tidelog.aggregate("product", tidelog.Semigroup(operator.mul), takes="number", gives="number")
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from tidelog.database.laws import LawCheck
from tidelog.errors import ProgramError, UsageError, did_you_mean
from tidelog.lang.lexer import AGGREGATES
from tidelog.logic import registry
from tidelog.logic.functors import FUNCTOR_NAMES, INFIX, PREFIX
from tidelog.logic.program import Program
from tidelog.values.algebra import Algebra, Group, Semigroup, SetFunction, UserAggregate
from tidelog.values.types import PRIMITIVES, Kind, Type

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPE = re.compile(r"[a-z]+( *\( *[a-z0-9(), ]+\))?")
_RESERVED = {"true", "false", "nil", "match", "contains", "_", *PRIMITIVES, "decimal", "set"}
BUILT_IN = AGGREGATES | FUNCTOR_NAMES | _RESERVED | INFIX.keys() | PREFIX.keys()


def aggregate(
    name: str,
    algebra: Algebra,
    *,
    takes: str,
    gives: str,
    samples: Iterable[Any] = (),
    replace: bool = False,
) -> None:
    """Register an aggregate, to be written `x = name y : { conditions }` in programs.

    `takes` and `gives` are types, written as in a declaration. The functions of the algebra must
    return the same result for the same values. Its laws are checked on values of the type and on
    `samples`; a violation is a UsageError with a counterexample. A group without rows has no value.
    A name that is registered already is refused, unless `replace` is true. Existing programs are
    not affected.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid aggregate name")
    if name in BUILT_IN:
        raise UsageError(f"an aggregate cannot be called `{name}`: that is a word of the language")
    if not isinstance(algebra, Group | Semigroup | SetFunction):
        kind = type(algebra).__name__
        raise UsageError(f"an algebra is a Group, a Semigroup or a SetFunction, not {kind}")
    made = UserAggregate(name, algebra, type_of(takes, "takes"), type_of(gives, "gives"))
    lifts = isinstance(algebra, SetFunction) or algebra.lift is not None
    if not lifts and made.takes != made.gives:
        raise UsageError(
            f"aggregate `{name}` takes `{made.takes}` and gives `{made.gives}`:"
            " it needs a `lift` from one to the other"
        )
    LawCheck(made, samples).run()
    if not registry.remember(made, replace=replace):
        raise UsageError(
            f"an aggregate `{name}` is registered already;"
            " forget it with `forget_aggregate`, or say `replace=True`"
        )


def forget_aggregate(name: str) -> None:
    """Remove a registered aggregate. Programs that use it are not affected."""
    if not registry.forget(name):
        hint = did_you_mean(name, registry.registered())
        raise UsageError(f"no aggregate `{name}` is registered" + (f"; {hint}" if hint else ""))


def type_of(text: str, what: str) -> Type:
    """Return a type that is written as in a declaration."""
    try:
        if not _TYPE.fullmatch(text):
            raise UsageError(f"`{what}` is not a type: {text!r}")
        program = Program.parse(f".decl r(x: {text})")
    except ProgramError as error:
        raise UsageError(f"`{what}` is not a type: {error.diagnostics[0].message}") from None
    type_ = program.relations["r"].columns[0].type
    inner: Type | None = type_
    while inner is not None:
        assert inner.kind is not Kind.RECORD, "no record is declared"
        inner = inner.element
    return type_
