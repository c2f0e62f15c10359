"""A comparison with a known value, as a place among the codes of a column (plan/bounds.py)."""

from __future__ import annotations

import numpy as np

from tidelog.kernel import checked
from tidelog.kernel import join_layout as k
from tidelog.kernel.compiling import inlined


@inlined
def limit_code(ordinal, offset, bias, kind, mask):
    """Return the first code above a bound, or the first one that is not below it any more.

    The bound is `ordinal + offset`; `kind` says on which side of it codes are wanted, and whether
    it is one of them. Also returns whether the place is before all codes, and behind all of them.
    """
    value, overflowed = checked.add(ordinal, offset)
    beyond = overflowed and offset > 0
    before = overflowed and offset < 0
    if not overflowed:
        code, overflowed = checked.subtract(value, bias)
        beyond, before = overflowed and bias < 0, overflowed and bias > 0
        value = code
    if not beyond and not before:
        # Rows from `value` on are above it; one further if the value belongs to the other side.
        if ((kind & k.BELOW) != 0) == ((kind & k.INCLUSIVE) != 0):
            value, beyond = checked.add(value, np.int64(1))
        if not beyond and mask != -1:
            before = value < 0
            beyond = value > mask
    return value, before, beyond
