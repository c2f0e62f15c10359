"""Checks on samples that the functions of an algebra obey its laws.

The engine relies on these laws. A sum that is not commutative would depend on the order of changes;
a combination that is not associative would depend on where the rows are split. A sample that breaks
a law is shown as a counterexample. Samples prove nothing, but they find most mistakes.

A function may raise on the default samples of a type, since it need not accept every value. On the
user's own samples it must not.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

from tidelog.errors import UsageError
from tidelog.io.tabular import checker
from tidelog.values.algebra import Group, Semigroup, SetFunction, UserAggregate
from tidelog.values.types import Kind, Type

_MOST = 12
"""How many samples are tried. A law takes up to three at a time."""

_SCALARS: dict[Kind, tuple[Any, ...]] = {
    Kind.NUMBER: (0, 1, -1, 2, 3, 7, -10),
    Kind.UNSIGNED: (0, 1, 2, 3, 7, 10),
    Kind.FLOAT: (0.0, 1.0, -1.0, 0.1, 0.2, 0.3, 1e16),
    Kind.SYMBOL: ("", "a", "b", "ab", "ba"),
    Kind.BOOL: (False, True),
    Kind.DATE: (dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1999, 12, 31)),
    Kind.TIMESTAMP: (
        dt.datetime(1970, 1, 1),
        dt.datetime(2024, 2, 29, 12),
        dt.datetime(1999, 12, 31, 23, 59, 59),
    ),
}


def default_samples(type_: Type) -> list[Any]:
    """Return some values of a type."""
    if type_.kind is Kind.DECIMAL:
        step = Decimal(1).scaleb(-type_.scale)
        return [step * n for n in (0, 1, -1, 2, 9)]
    if type_.kind is Kind.SET:
        assert type_.element is not None
        inner = default_samples(type_.element)[:3]
        return [frozenset(), *(frozenset(inner[:n]) for n in range(1, len(inner) + 1))]
    return list(_SCALARS[type_.kind])


@dataclass(frozen=True)
class Law:
    """Two expressions in `arity` values that must be equal, as functions and as text."""

    what: str
    arity: int
    left: Callable[..., Any]
    right: Callable[..., Any]
    shown_left: str
    shown_right: str


def associative(f: Callable[[Any, Any], Any], name: str) -> Law:
    """Return the law (a . b) . c = a . (b . c)."""
    return Law(
        "is not associative", 3,
        lambda a, b, c: f(f(a, b), c), lambda a, b, c: f(a, f(b, c)),
        f"{name}({name}({{}}, {{}}), {{}})", f"{name}({{}}, {name}({{}}, {{}}))",
    )  # fmt: skip


def group_laws(
    add: Callable[[Any, Any], Any], negate: Callable[[Any], Any], zero: Any
) -> Iterator[Law]:
    """Yield the laws of an Abelian group."""
    yield associative(add, "add")
    yield Law(
        "is not commutative", 2, add, lambda a, b: add(b, a), "add({0}, {1})", "add({1}, {0})"
    )
    yield Law(
        "has a zero that changes values", 1, lambda a: add(a, zero), lambda a: a,
        f"add({{}}, {zero!r})", "{}",
    )  # fmt: skip
    yield Law(
        "does not take away what it adds", 1, lambda a: add(a, negate(a)), lambda a: zero,
        "add({0}, negate({0}))", f"{zero!r}",
    )  # fmt: skip


class LawCheck:
    """Tries an aggregate on samples; raises UsageError with a counterexample."""

    def __init__(self, aggregate: UserAggregate, samples: Iterable[Any]) -> None:
        self._aggregate = aggregate
        self._check_result = checker(aggregate.gives, {})
        takes = checker(aggregate.takes, {})
        try:
            own = [takes(sample) for sample in samples]
        except ValueError as error:
            raise self._refused(f"was given a wrong sample: {error}") from None
        more = [value for value in default_samples(aggregate.takes) if value not in own]
        # The user's come first, so that all of them are tried.
        self._samples = [*((v, True) for v in own), *((v, False) for v in more)]
        self._samples = self._samples[: max(_MOST, len(own))]

    def run(self) -> None:
        """Try all laws of the algebra."""
        match self._aggregate.algebra:
            case SetFunction(function):
                self._try_function(function)
            case Semigroup(combine, lift):
                self._try_law(associative(self._typed(combine), "combine"), self._lifted(lift))
            case Group(add, negate, zero, lift):
                elements = self._lifted(lift)
                zero = self._typed(lambda: zero)()
                for law in group_laws(self._typed(add), self._typed(negate), zero):
                    self._try_law(law, [*elements, (zero, False)])

    def _try_function(self, function: Callable[[frozenset[Any]], Any]) -> None:
        everything = frozenset(value for value, _ in self._samples)
        sets = [*((frozenset([v]), is_own) for v, is_own in self._samples), (everything, False)]
        self._results(self._typed(function), sets)

    def _lifted(self, lift: Callable[[Any], Any] | None) -> list[tuple[Any, bool]]:
        """Return the samples as values of the result's type."""
        if lift is None:
            return self._samples
        return self._results(self._typed(lift), self._samples)

    def _results(
        self, function: Callable[[Any], Any], samples: list[tuple[Any, bool]]
    ) -> list[tuple[Any, bool]]:
        results = []
        for value, is_own in samples:
            try:
                results.append((function(value), is_own))
            except Exception as error:
                self._may_fail(error, is_own, repr(value))
        self._require_some(results)
        return results

    def _try_law(self, law: Law, samples: list[tuple[Any, bool]]) -> None:
        tried = []
        for chosen in product(samples, repeat=law.arity):
            values = [value for value, _ in chosen]
            shown = [repr(value) for value in values]
            try:
                left, right = law.left(*values), law.right(*values)
            except Exception as error:
                self._may_fail(error, all(is_own for _, is_own in chosen), ", ".join(shown))
                continue
            tried.append(values)
            if left is not right and left != right:  # NaN is one object
                raise self._refused(
                    f"{law.what}: {law.shown_left.format(*shown)} is {left!r},"
                    f" but {law.shown_right.format(*shown)} is {right!r}"
                )
        self._require_some(tried)

    def _typed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that refuses the aggregate if a result has another type."""

        def typed(*args: Any) -> Any:
            result = function(*args)
            try:
                return self._check_result(result)
            except ValueError as error:
                shown = ", ".join(map(repr, args))
                of = f" of {shown}" if args else ""
                wanted = f"it is said to give `{self._aggregate.gives}`"
                raise self._refused(f"gives a wrong result{of}: {error}; {wanted}") from None

        return typed

    def _may_fail(self, error: Exception, is_own: bool, values: str) -> None:
        if isinstance(error, UsageError):
            raise error
        if is_own:
            reason = f"{type(error).__name__}: {error}"
            raise self._refused(f"fails on the samples {values}: {reason}") from error

    def _require_some(self, tried: Sized) -> None:
        if not tried:
            raise self._refused(
                f"fails on all samples of `{self._aggregate.takes}`; give some with `samples=`"
            )

    def _refused(self, reason: str) -> UsageError:
        return UsageError(f"aggregate `{self._aggregate.name}` {reason}")
