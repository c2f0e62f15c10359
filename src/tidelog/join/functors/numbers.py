"""Functors on numbers: integers, decimals and dates, which are exact; bits; floats."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tidelog.join.functors.common import Scalar, Uncomputable
from tidelog.store.codec import Codec
from tidelog.values.types import NUMBER_MAX, NUMBER_MIN, Kind, Type

_TEMPORAL = frozenset({Kind.DATE, Kind.TIMESTAMP})
_WORD = 1 << 64
SIGN = 1 << 63
DAY = 86_400_000_000  # microseconds


# --- integers, decimals, dates: exact, then checked -------------------------------------------


def truncated(a: int, b: int) -> int:
    """Return a / b rounded towards zero."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def half_even(a: int, b: int) -> int:
    """Return a / b rounded to the nearest integer, half to even."""
    if b < 0:
        a, b = -a, -b
    quotient, rest = divmod(a, b)
    return quotient + (2 * rest > b or (2 * rest == b and quotient % 2 == 1))


def _power(base: int, exponent: int) -> int:
    if exponent < 0:
        if base == 0:
            raise ZeroDivisionError
        return base ** (exponent % 2) if abs(base) == 1 else 0
    if abs(base) > 1 and exponent > 64:
        raise OverflowError  # without computing a number of millions of digits
    power: int = base**exponent
    return power


_EXACT: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "div": truncated,
    "mod": lambda a, b: a - b * truncated(a, b),
    "pow": _power,
}

_SHOWN = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "pow": "^", "neg": "-"}


def checked(op: str, types: Sequence[Type], result: Type, codec: Codec) -> Scalar:
    """Return an operation on whole numbers, which decimals and dates are, too."""
    compute = _EXACT[op]
    if result.kind is Kind.DECIMAL and op in ("mul", "div"):
        one = 10**result.scale
        compute = (
            (lambda a, b: half_even(a * b, one))
            if op == "mul"
            else (lambda a, b: half_even(a * one, b))
        )
    low, high = bounds(result)
    bias = bias_of(result)  # only unsigned numbers have one, and they do not mix with other types
    limits = (
        "is outside the years 1 to 9999" if result.kind in _TEMPORAL else f"overflows `{result}`"
    )

    def shown(args: tuple[int, ...]) -> str:
        values = [str(codec.decoder(t)(arg)) for t, arg in zip(types, args, strict=True)]
        sign = _SHOWN[op]
        return f"{sign}{values[0]}" if len(values) == 1 else f" {sign} ".join(values)

    def scalar(*args: int) -> int:
        try:
            value = compute(*(arg + bias for arg in args))
        except ZeroDivisionError:
            raise Uncomputable(f"division by zero: {shown(args)}") from None
        except OverflowError:
            raise Uncomputable(f"{shown(args)} overflows") from None
        if not low <= value - bias <= high:
            raise Uncomputable(f"{shown(args)} {limits}")
        return value - bias

    return scalar


def bounds(type_: Type) -> tuple[int, int]:
    """Return the smallest and the largest ordinal of a type."""
    match type_.kind:
        case Kind.DECIMAL:
            return 1 - 10**type_.precision, 10**type_.precision - 1
        case Kind.DATE:
            return -719_162, 2_932_896
        case Kind.TIMESTAMP:
            return -719_162 * DAY, 2_932_897 * DAY - 1
        case _:
            return NUMBER_MIN, NUMBER_MAX


def bias_of(type_: Type) -> int:
    """Return what is added to the ordinal of a whole number to get the number."""
    return SIGN if type_.kind is Kind.UNSIGNED else 0


# Of 64 bits; shifts look at the low six bits of the distance only, as the machine does.
BITS: dict[str, Callable[..., int]] = {
    "band": lambda a, b: a & b,
    "bor": lambda a, b: a | b,
    "bxor": lambda a, b: a ^ b,
    "bnot": lambda a: ~a,
    "bshl": lambda a, b: a << (b & 63),
    "bshr": lambda a, b: a >> (b & 63),
    "bshru": lambda a, b: (a % _WORD) >> (b & 63),
    "land": lambda a, b: a != 0 and b != 0,
    "lor": lambda a, b: a != 0 or b != 0,
    "lxor": lambda a, b: (a != 0) != (b != 0),
    "lnot": lambda a: a == 0,
}


def bit_functor(op: str, result: Type) -> Scalar:
    """Return an operation on the 64 bits of whole numbers."""
    compute, bias = BITS[op], bias_of(result)
    # Reduced to [-2**63, 2**63) the pattern of a number is its ordinal, and so is that of an
    # unsigned number less its bias.
    return lambda *args: (compute(*(a + bias for a in args)) - bias + SIGN) % _WORD - SIGN


# --- floats: as IEEE 754 says, where Python raises --------------------------------------------


def _divide_float(a: float, b: float) -> float:
    if b == 0.0:  # there is no -0.0
        return math.nan if a == 0.0 or math.isnan(a) else math.copysign(math.inf, a)
    return a / b


def _power_float(a: float, b: float) -> float:
    # Not np.power, whose vector instructions round the last bit differently.
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0.0 and b % 2.0 == 1.0 else math.inf
    except ValueError:  # 0 to a negative power, or a root of a negative number
        return math.inf if a == 0.0 else math.nan


FLOATS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "div": _divide_float,
    "pow": _power_float,
}
