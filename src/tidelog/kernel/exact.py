"""Exact sums: integers of two thousand bits, and the floats nearest to them.

A float is m * 2**(p - 1074), with an integer m below 2**53 and p not negative. So a sum of floats
is an integer, in units of the smallest float. It fits LIMBS *limbs* of 32 bits:

    sum = limb[0] + limb[1] * 2**32 + limb[2] * 2**64 + ..          (times the unit)

While values are added, a limb is a signed number of 64 bits, and nothing is carried. So adding and
subtracting are exact, and cost the same. Then `settle` brings the sum into its canonical form: a
sign, and limbs of 32 bits. Whole numbers are added in the same way, with a unit of 1.

Infinities and NaN are only counted, in the three numbers behind the limbs.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tidelog.kernel.compiling import FALSE, helper

LIMBS = 70  # the highest bit of a float is 2**2046; with these, 2**63 floats can be added
PLUS_INFINITY, MINUS_INFINITY, NAN = LIMBS, LIMBS + 1, LIMBS + 2
SIZE = LIMBS + 3
MOST_ADDED = 1 << 29  # the most values that can be added before the limbs must be settled

UNIT_EXPONENT = -1074  # of the unit of a sum of floats

_MASK = (1 << 32) - 1
_FRACTION = (1 << 52) - 1
_INFINITY = 2047 << 52
_NAN = (2047 << 52) | (1 << 51)
_PART = 62  # bits of each half of a divisor
_PART_MASK = (1 << _PART) - 1
_HALF_MASK = (1 << 31) - 1


@njit(cache=True, inline="always")
def add_float(limbs, g, ordinal, sign):
    """Add a float to the limbs of row g, or subtract it; return the first limb that changes.

    The float is given by its ordinal (store/codec.py). Three limbs change. If it is only counted,
    none changes, and the answer is -1.
    """
    bits = ordinal if ordinal >= 0 else ~ordinal
    exponent = bits >> 52
    fraction = bits & _FRACTION
    if exponent == 2047:
        if fraction != 0:
            limbs[g, NAN] += sign
        elif ordinal >= 0:
            limbs[g, PLUS_INFINITY] += sign
        else:
            limbs[g, MINUS_INFINITY] += sign
        return np.int64(-1)
    if exponent == 0:
        exponent = np.int64(1)
    else:
        fraction |= 1 << 52
    if ordinal < 0:
        sign = -sign
    first = (exponent - 1) >> 5
    shift = (exponent - 1) & 31
    low = (fraction & _MASK) << shift
    high = (fraction >> 32) << shift
    limbs[g, first] += sign * (low & _MASK)
    limbs[g, first + 1] += sign * ((low >> 32) + (high & _MASK))
    limbs[g, first + 2] += sign * (high >> 32)
    return first


@njit(cache=True, inline="always")
def add_whole(limbs, g, ordinal, sign, high_bias):
    """Add a whole number to the limbs of row g; `high_bias` * 2**32 is added to its ordinal."""
    limbs[g, 0] += sign * (ordinal & _MASK)
    limbs[g, 1] += sign * ((ordinal >> 32) + high_bias)


@njit(cache=True, inline="always")
def settle(limbs, low, high):
    """Bring the limbs [low, high) into 32 bits each; return (sign, low, high) of those in use.

    The sign is -1 or 1, or 0 if the sum is 0. The first and the last limb in use are not 0.
    """
    if low >= high:
        return np.int64(0), np.int64(0), np.int64(0)
    carry = np.int64(0)
    for i in range(low, high):
        value = limbs[i] + carry
        limbs[i] = value & _MASK
        carry = value >> 32
    while carry not in (0, -1):
        limbs[high] = carry & _MASK
        carry >>= 32
        high += 1
    sign = np.int64(1)
    if carry == -1:
        # The limbs are the sum plus 2**(32 * high).
        sign = np.int64(-1)
        carry = np.int64(1)
        for i in range(low, high):
            value = (limbs[i] ^ _MASK) + carry
            limbs[i] = value & _MASK
            carry = value >> 32
        if carry != 0:
            limbs[high] = carry
            high += 1
    while high > low and limbs[high - 1] == 0:
        high -= 1
    while low < high and limbs[low] == 0:
        low += 1
    if low == high:
        return np.int64(0), np.int64(0), np.int64(0)
    return sign, low, high


@njit(cache=True, inline="always")
def _length(value):
    """Return the number of bits of a number that is not negative."""
    bits = np.int64(0)
    while value >= 1 << 16:
        value >>= 16
        bits += 16
    while value != 0:
        value >>= 1
        bits += 1
    return bits


@njit(cache=True, inline="always")
def _is_any_below(limbs, low, position):
    """Return whether any bit below a position is set; limb `low` is the first that is not 0."""
    if position <= 0:
        return False
    limb = position >> 5
    return low < limb or (limbs[limb] & ((np.int64(1) << (position & 31)) - 1)) != 0


@helper
def _rounded(quotient, is_more, shift):
    """Return the bits of the float nearest to quotient / 2 * 2**shift units; ties go to even.

    The quotient has 54 bits, or fewer if `shift` is 0; `is_more` says that lower bits are set.
    """
    half = quotient & 1
    quotient >>= 1
    if half != 0 and (is_more or (quotient & 1) != 0):
        quotient += 1
    if shift == 0:
        return quotient  # subnormal floats, and those with the smallest exponent
    if shift >= 2046:
        return np.int64(_INFINITY)
    # A quotient of 2**53 carries into the exponent, as it should.
    bits = ((shift + 1) << 52) + (quotient - (np.int64(1) << 52))
    return min(bits, _INFINITY)


@helper
def _nearest(limbs, low, high, exponent):
    """Return the bits of the float nearest to the settled limbs * 2**exponent."""
    bits = 32 * (high - 1) + _length(limbs[high - 1])
    last = max(bits - 54, UNIT_EXPONENT - 1 - exponent)  # the position of half a unit of the last
    if last < 0:
        # At most 54 bits, in the first two limbs.
        return _rounded((limbs[0] | (limbs[1] << 32)) << -last, FALSE, last + 1 + exponent + 1074)
    limb, offset = last >> 5, last & 31
    quotient = (limbs[limb] >> offset) | (limbs[limb + 1] << (32 - offset))
    if offset != 0:
        quotient |= limbs[limb + 2] << (64 - offset)
    quotient &= (np.int64(1) << 54) - 1
    return _rounded(quotient, _is_any_below(limbs, low, last), last + 1 + exponent + 1074)


@helper
def _nearest_ratio(limbs, low, high, exponent, count, scale):
    """Return the bits of the float nearest to limbs * 2**exponent / (count * scale).

    Long division, bit by bit: as many steps as the divisor has bits, and 54 more. Divisor and
    remainder are below 2**124, and stored in two halves of 62 bits.
    """
    cross = (count >> 31) * (scale & _HALF_MASK) + (count & _HALF_MASK) * (scale >> 31)
    divisor_low = (count & _HALF_MASK) * (scale & _HALF_MASK)
    divisor_low += (cross & _HALF_MASK) << 31
    divisor_high = (count >> 31) * (scale >> 31) + (cross >> 31) + (divisor_low >> _PART)
    divisor_low &= _PART_MASK
    rest_low, rest_high = np.int64(0), np.int64(0)
    quotient = np.int64(0)
    collected = 0
    position = 32 * (high - 1) + _length(limbs[high - 1])
    least = UNIT_EXPONENT - 1 - exponent
    while collected < 54 and position > least:
        position -= 1
        bit = np.int64(0)
        if position >= 0:
            bit = (limbs[position >> 5] >> (position & 31)) & 1
        rest_high = (rest_high << 1) | (rest_low >> (_PART - 1))
        rest_low = ((rest_low << 1) & _PART_MASK) | bit
        quotient <<= 1
        if rest_high > divisor_high or (rest_high == divisor_high and rest_low >= divisor_low):
            quotient |= 1
            rest_high -= divisor_high
            rest_low -= divisor_low
            if rest_low < 0:
                rest_low += 1 << _PART
                rest_high -= 1
        if quotient != 0:
            collected += 1
    is_more = rest_low != 0 or rest_high != 0 or _is_any_below(limbs, low, position)
    return _rounded(quotient, is_more, position + 1 + exponent + 1074)


@helper
def float_ordinal_of(limbs, sign, low, high, exponent, count, scale):
    """Return the ordinal of the float nearest to a settled sum, divided by count * scale.

    NaN, or infinities of both signs, give NaN; infinities of one sign give that infinity.
    """
    if limbs[NAN] != 0 or (limbs[PLUS_INFINITY] != 0 and limbs[MINUS_INFINITY] != 0):
        return np.int64(_NAN)
    if limbs[PLUS_INFINITY] != 0:
        return np.int64(_INFINITY)
    if limbs[MINUS_INFINITY] != 0:
        return ~np.int64(_INFINITY)
    if sign == 0:
        return np.int64(0)
    is_small = exponent == 0 and (high < 2 or (high == 2 and limbs[1] < 1 << 21))
    if count == 1 and scale == 1:
        bits = _nearest(limbs, low, high, exponent)
    elif is_small and count <= (1 << 53) // scale:
        # Both are floats, so the processor rounds their ratio correctly, and without a loop.
        value, divisor = limbs[0] | (limbs[1] << 32), count * scale
        bits = np.float64(value / divisor).view(np.int64)
    else:
        bits = _nearest_ratio(limbs, low, high, exponent, count, scale)
    return ~bits if sign < 0 and bits != 0 else bits
