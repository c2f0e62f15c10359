"""Functors become instructions of the join machine (kernel/machine.py), on ordinals."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.kernel.machine import Op
from tidelog.plan.body import FunctorCall
from tidelog.plan.bounds import ordinal_range
from tidelog.values.types import Kind, Type


class FunctorCode:
    """Writes the instructions of functors."""

    def __init__(
        self,
        code: list[tuple[int, int, int, int]],
        fresh: Callable[[], int],
        number: Callable[[int], int],
    ) -> None:
        """Append to `code`; `fresh` returns a new slot, `number` one that holds a number."""
        self._code, self._fresh, self._number = code, fresh, number

    def _op(self, op: Op, a: int, b: int = 0) -> int:
        into = self._fresh()
        self._code.append((op, into, a, b))
        return into

    def add(self, value: FunctorCall, args: list[int]) -> int:
        """Add the code of `value`; return the slot of the result."""
        kind = value.type.kind
        if value.op in ("min", "max"):
            op = Op.MIN if value.op == "min" else Op.MAX
            result = args[0]
            for arg in args[1:]:
                result = self._op(op, result, arg)
            return result
        if value.op in ("to_number", "to_unsigned", "to_float"):
            return self._convert(value, args[0])
        if kind is Kind.FLOAT:
            return self._op(Op[f"F_{value.op.upper()}"], *args)
        if value.op in ("add", "sub", "mul", "div", "mod", "pow", "neg"):
            if kind is Kind.UNSIGNED:
                return self._op(Op[f"U_{value.op.upper()}"], *args)
            result = self._op(Op[value.op.upper()], *args)
            return self._in_range(result, value.type)
        return self._bits(value, args)

    def _in_range(self, result: int, type_: Type) -> int:
        bounds = ordinal_range(type_)
        if bounds is None:
            return result
        low = self._number(bounds[0])
        self._number(bounds[1])
        return self._op(Op.WITHIN, result, low)

    def _bits(self, value: FunctorCall, args: list[int]) -> int:
        """Bit patterns of unsigned numbers are their ordinals with the highest bit flipped."""
        unsigned = value.type.kind is Kind.UNSIGNED
        if unsigned:
            args = [self._op(Op.FLIP, arg) for arg in args]
        op = Op[value.op.upper()]
        if unsigned and op is Op.BSHR:
            op = Op.BSHRU
        result = self._op(op, *args)
        return self._op(Op.FLIP, result) if unsigned else result

    def _convert(self, value: FunctorCall, arg: int) -> int:
        source, target = value.types[0].kind, value.type.kind
        if source is target:
            return arg
        if source is Kind.DECIMAL:
            raise AssertionError("decimals are converted outside")
        if source in (Kind.BOOL, Kind.DATE, Kind.TIMESTAMP):
            return arg  # their ordinal is the number
        names = {Kind.NUMBER: "N", Kind.UNSIGNED: "U", Kind.FLOAT: "F"}
        return self._op(Op[f"{names[source]}_TO_{names[target]}"], arg)
