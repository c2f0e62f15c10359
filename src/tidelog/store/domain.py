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

    _united: list[Domain] | None = None
    """The objects that are this domain, if there are several."""

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

    def unite(self, other: Domain) -> bool:
        """Make both one domain, which covers what either does; return whether codes may change.

        Both objects stay in use, and share all they have.
        """
        if self == other:
            return False
        mine, theirs = (self.bias, self.bits), (other.bias, other.bits)
        bias = min(self.bias, other.bias)
        highest = max(domain.bias + (1 << domain.bits) - 1 for domain in (self, other))
        bits = (highest - bias).bit_length()
        if self.is_raw or other.is_raw or bits > _MOST_PACKED:
            bias, bits = 0, RAW_BITS
        self.bias, self.bits = bias, bits
        # No generation may stand for two sets of codes. That of a domain that keeps its codes stays
        # if it can: then the joins that were planned for it stay.
        is_changed = not mine == theirs == (bias, bits)
        if mine != (bias, bits) or (is_changed and self.generation <= other.generation):
            self.generation = max(self.generation, other.generation) + 1
        self.generation = max(self.generation, other.generation)
        self._united = [*(self._united or [self]), *(other._united or [other])]
        for domain in self._united:
            domain.__dict__ = self.__dict__
        return is_changed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.__dict__ is other.__dict__

    def __hash__(self) -> int:
        return id(self.__dict__)

    def __repr__(self) -> str:
        return "<Domain raw>" if self.is_raw else f"<Domain {self.bias} + {self.bits} bits>"


class DomainOverflow(Exception):
    """A computed value needs a wider domain. The epoch is aborted, and run again with it."""

    def __init__(self, domain: Domain, ordinal: int) -> None:
        super().__init__(domain, ordinal)
        self.domain, self.ordinal = domain, ordinal
