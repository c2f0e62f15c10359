"""Which codes stand for the values of a class of columns.

Inside the kernel a value is an *ordinal*, a 64-bit integer in the order of its type
(store/codec.py). Columns that share a variable in some rule form one *domain*, and all of them
write an ordinal as the same *code*: ordinal - bias, a number that is not negative and fits `bits`
bits. Few bits matter: columns whose bits add up to 63 or less share one word, and a row of one word
is sorted and compared 20 times as fast as one of two. A domain whose values do not fit 62 bits is
*raw*: its code is the ordinal itself, in a word of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RAW_BITS = 64
_MOST_PACKED = 62


class Domain:
    """How ordinals become codes. It only ever widens, at least doubling what it covers."""

    def __init__(self) -> None:
        self.bias = 0
        self.bits = 1
        self.generation = (
            0  # grows with every change, so that layouts know when they are out of date
        )

    @property
    def is_raw(self) -> bool:
        """Whether codes are ordinals."""
        return self.bits == RAW_BITS

    @property
    def mask(self) -> int:
        """The bits a code may have."""
        return -1 if self.is_raw else (1 << self.bits) - 1

    def covers(self, low: int, high: int) -> bool:
        """Return whether all ordinals in [low, high] have codes."""
        bias, bits = self.bias, self.bits
        return bits == RAW_BITS or (bias <= low and high - bias < 1 << bits)

    def require(self, ordinals: NDArray[np.int64]) -> None:
        """Raise DomainOverflow if one of the ordinals has no code."""
        n = len(ordinals)
        if n == 0 or self.is_raw:
            return
        low = int(ordinals[0] if n == 1 else ordinals.min())
        high = low if n == 1 else int(ordinals.max())
        if not self.covers(low, high):
            raise DomainOverflow(self, high if self.covers(low, low) else low)

    def code(self, ordinal: int) -> int:
        """Return the code of an ordinal; for one that is not covered -1, which no row has."""
        return ordinal - self.bias if self.covers(ordinal, ordinal) else -1

    def widen(self, low: int, high: int) -> bool:
        """Make room for the ordinals in [low, high]; return whether anything changed."""
        if self.covers(low, high):
            return False
        bias = self.bias
        if low < bias:
            bias = -(1 << (-low).bit_length()) if low < 0 else 0
        highest = max(high, self.bias + (1 << self.bits) - 1)
        bits = (highest - bias).bit_length() + 1
        if bits > _MOST_PACKED:
            self.bias, self.bits = 0, RAW_BITS
        else:
            self.bias, self.bits = bias, bits
        self.generation += 1
        return True

    def __repr__(self) -> str:
        return "<Domain raw>" if self.is_raw else f"<Domain {self.bias} + {self.bits} bits>"


class DomainOverflow(Exception):
    """A computed value needs a wider domain. The epoch is aborted, and run again with it."""

    def __init__(self, domain: Domain, ordinal: int) -> None:
        super().__init__(domain, ordinal)
        self.domain, self.ordinal = domain, ordinal
