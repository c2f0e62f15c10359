"""Which float an exact sum or mean is: rounded once, whatever the order of the values."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from tidelog.values.scalars import NAN, canonical_float


def exact_ratio(values: list[Any], divisor: int) -> float:
    """Return the float nearest to sum(values) / divisor, whatever the order of the values.

    Infinities and NaN count as IEEE 754 says: two opposite infinities, or a NaN, give NaN. A sum
    beyond the largest float is an infinity.
    """
    special = [v for v in values if isinstance(v, float) and not math.isfinite(v)]
    if special:
        return canonical_float(special[0] if len(set(special)) == 1 else NAN)
    exact = sum((Fraction(v) for v in values), Fraction(0)) / divisor
    try:
        return canonical_float(float(exact))
    except OverflowError:
        return math.inf if exact > 0 else -math.inf
