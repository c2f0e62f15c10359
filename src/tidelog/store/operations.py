"""What is computed from the rows of a group: their count, a sum of them, or a mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import accumulate as k

Array = NDArray[np.int64]


@dataclass(frozen=True)
class Operation:
    """What is computed from the sum of a group, as the kernel reads it."""

    numbers: Array

    @classmethod
    def count(cls) -> Operation:
        """Return the count of rows."""
        return cls._of(k.COUNT_ROWS)

    @classmethod
    def whole_sum(cls, *, unsigned: bool = False, most: int = 0) -> Operation:
        """Return a sum of whole numbers, below `most` in size; 0 stands for 64 bits."""
        return cls._of(k.WHOLE_SUM, bias=unsigned, most=most)

    @classmethod
    def float_sum(
        cls, *, of_floats: bool, mean: bool, unsigned: bool = False, scale: int = 1
    ) -> Operation:
        """Return a sum or a mean that is a float; whole numbers are divided by `scale`."""
        return cls._of(k.FLOAT_RESULT, of_floats, unsigned, mean, scale)

    @property
    def is_count(self) -> bool:
        """Whether this is the count of rows."""
        return bool(self.numbers[k.OPERATION] == k.COUNT_ROWS)

    @property
    def may_overflow(self) -> bool:
        """Whether a result can be beyond its type."""
        return bool(self.numbers[k.OPERATION] == k.WHOLE_SUM)

    @classmethod
    def _of(
        cls, what: int, is_float: bool = False, bias: bool = False, mean: bool = False,
        scale: int = 1, most: int = 0,
    ) -> Operation:  # fmt: skip
        numbers = np.zeros(k.OPERATION_SIZE, np.int64)
        numbers[k.OPERATION], numbers[k.IS_FLOAT], numbers[k.IS_MEAN] = what, is_float, mean
        # The ordinal of an unsigned number is 2**63 below it.
        numbers[k.HIGH_BIAS], numbers[k.SCALE], numbers[k.MOST] = bias << 31, scale, most
        return cls(numbers)
