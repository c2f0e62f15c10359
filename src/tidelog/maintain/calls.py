"""Calling the functions of an aggregate that is registered from Python, on ordinals.

An exception, or a result of another type than the declared one, becomes an EvaluationError that
names the aggregate, the rule and the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from tidelog.errors import EvaluationError
from tidelog.io.tabular import checker
from tidelog.plan.lowered import Aggregation
from tidelog.store.codec import Codec
from tidelog.values.algebra import Group, Semigroup, SetFunction
from tidelog.values.types import Type


class Calls:
    """Calls the functions of one aggregate."""

    def __init__(self, aggregation: Aggregation, types: tuple[Type, ...], codec: Codec) -> None:
        """`types` are those of the columns of the aggregate's source."""
        assert aggregation.algebra is not None and aggregation.target_type is not None
        self._aggregation = aggregation
        self._algebra = aggregation.algebra
        self._group = [codec.decoder(types[column]) for column in aggregation.group]
        self._target = codec.decoder(aggregation.target_type)
        self._result = codec.decoder(aggregation.result_type)
        self._encode = codec.encoder(aggregation.result_type)
        self._checked = checker(aggregation.result_type, codec.records)

    def result(self, values: Iterable[int], group: Iterable[int]) -> int:
        """Return the aggregate of a group's values, in their order; there is at least one.

        For a function of sets there is one value, which is the set.
        """
        plain = map(self._target, values)
        match self._algebra:
            case SetFunction(function):
                return self._call(lambda: function(next(plain)), group)
            case Group(combine, lift=lift) | Semigroup(combine, lift=lift):
                lifted = plain if lift is None else map(lift, plain)
                return self._call(lambda: reduce(combine, lifted), group)

    def changed(
        self, held: int, inserted: list[int], deleted: list[int], group: Iterable[int]
    ) -> int:
        """Return the sum of a group after a change: held + inserted values - deleted values."""
        algebra = self._algebra
        assert isinstance(algebra, Group)
        lift = algebra.lift if algebra.lift is not None else _same

        def total() -> Any:
            value = self._result(held)
            for ordinal in inserted:
                value = algebra.add(value, lift(self._target(ordinal)))
            for ordinal in deleted:
                value = algebra.add(value, algebra.negate(lift(self._target(ordinal))))
            return value

        return self._call(total, group)

    def _call(self, compute: Callable[[], Any], group: Iterable[int]) -> int:
        return self.encoded(self.computed(compute, group), group)

    def computed(self, compute: Callable[[], Any], group: Iterable[int]) -> Any:
        """Return the result of a computation for a group; raise EvaluationError if it fails."""
        try:
            return compute()
        except Exception as error:
            name = self._aggregation.op
            reason = f"aggregate `{name}` failed: {type(error).__name__}: {error}"
            raise self._error(reason, group) from error

    def encoded(self, value: Any, group: Iterable[int]) -> int:
        """Return the ordinal of a group's result; raise EvaluationError if its type is wrong."""
        try:
            return self._encode(self._checked(value))
        except ValueError as error:
            reason = f"aggregate `{self._aggregation.op}` gave a wrong result: {error}"
            raise self._error(reason, group) from None

    def _error(self, reason: str, group: Iterable[int]) -> EvaluationError:
        aggregation = self._aggregation
        values = {
            name: decode(ordinal)
            for name, decode, ordinal in zip(aggregation.variables, self._group, group, strict=True)
            if not name.startswith("$")
        }
        return EvaluationError(reason, aggregation.text, aggregation.span, values)


def _same(value: Any) -> Any:
    return value
