"""Arithmetic and comparisons inside a join: a small register machine.

An instruction is (opcode, destination, left, right); all three are slots of the join. Values are
*ordinals*, 64-bit integers in the order of their type: a number is itself, an unsigned number has
its highest bit flipped, a float is its bits, all but the sign flipped if it is negative. So one
comparison serves all types. An operation without a result returns a failure, and the caller decides
what that means.
"""

from __future__ import annotations

import enum

import numpy as np
from numba import njit

from tidelog.kernel.checked import add, multiply, multiply_unsigned, subtract, wrapped_add
from tidelog.kernel.compiling import helper
from tidelog.kernel.pointers import bits_of, float_of, load64


class Op(enum.IntEnum):
    """The opcodes."""

    MOVE = 0
    ADD_CONST = 1  # destination = left + the constant `right`, modulo 2**64
    EQ = 2
    NE = 3
    LT = 4
    LE = 5
    MIN = 6
    MAX = 7
    ADD = 10
    SUB = 11
    MUL = 12
    DIV = 13
    MOD = 14
    POW = 15
    NEG = 16
    U_ADD = 20
    U_SUB = 21
    U_MUL = 22
    U_DIV = 23
    U_MOD = 24
    U_POW = 25
    F_ADD = 30
    F_SUB = 31
    F_MUL = 32
    F_DIV = 33
    F_NEG = 34
    BAND = 40
    BOR = 41
    BXOR = 42
    BNOT = 43
    BSHL = 44
    BSHR = 45
    BSHRU = 46
    LAND = 47
    LOR = 48
    LXOR = 49
    LNOT = 50
    FLIP = 51  # between an unsigned ordinal and its bits
    N_TO_F = 60
    U_TO_F = 61
    F_TO_N = 62
    F_TO_U = 63
    N_TO_U = 64
    U_TO_N = 65
    WITHIN = 66  # fails unless left is in the range of the two slots at `right`
    LOOK_UP = 70  # destination = array[left]; `right` is the slot with the array's address


OVERFLOW, DIVISION, CONVERSION = 1, 2, 3

_MIN = np.int64(-(2**63))
_REVERSED = np.int64(2**63 - 1)
_NAN = np.int64(0x7FF8000000000000)
_TWO_63 = 2.0**63
_TWO_64 = 2.0**64

# Numba folds module constants, not enum members, into its switch.
_MOVE, _ADD_CONST, _EQ, _NE, _LT, _LE, _OP_MIN, _OP_MAX = (int(o) for o in list(Op)[:8])
_ADD, _SUB, _MUL, _DIV, _MOD, _POW, _NEG = range(10, 17)
_U_ADD, _U_SUB, _U_MUL, _U_DIV, _U_MOD, _U_POW = range(20, 26)
_F_ADD, _F_SUB, _F_MUL, _F_DIV, _F_NEG = range(30, 35)
_BAND, _BOR, _BXOR, _BNOT, _BSHL, _BSHR, _BSHRU, _LAND, _LOR, _LXOR, _LNOT, _FLIP = range(40, 52)
_N_TO_F, _U_TO_F, _F_TO_N, _F_TO_U, _N_TO_U, _U_TO_N, _WITHIN = range(60, 67)
_LOOK_UP = 70


@helper
def float_from_ordinal(ordinal):
    """Return the float with this ordinal."""
    return float_of(ordinal if ordinal >= 0 else ordinal ^ _REVERSED)


@helper
def ordinal_from_float(value):
    """Return the ordinal of a float; there is one NaN and one zero."""
    if np.isnan(value):
        return _NAN
    if value == 0.0:
        return np.int64(0)
    bits = bits_of(value)
    return bits if bits >= 0 else bits ^ _REVERSED


@helper
def _divide(a, b):
    """Return a / b rounded towards zero; b is not 0 and the result fits."""
    quotient = a // b
    if quotient < 0 and quotient * b != a:
        quotient += 1
    return quotient


@helper
def _power(base, exponent):
    """Return (base ^ exponent, failure)."""
    if exponent < 0:
        if base == 0:
            return np.int64(0), DIVISION
        if base == 1:
            return np.int64(1), 0
        if base == -1:
            return np.int64(1) if exponent % 2 == 0 else np.int64(-1), 0
        return np.int64(0), 0
    result = np.int64(1)
    while exponent > 0:
        if exponent & 1:
            result, overflowed = multiply(result, base)
            if overflowed:
                return result, OVERFLOW
        exponent >>= 1
        if exponent > 0:
            base, overflowed = multiply(base, base)
            if overflowed:
                return result, OVERFLOW
    return result, 0


@helper
def _u_power(base, exponent):
    result = np.uint64(1)
    while exponent > np.uint64(0):
        if exponent & np.uint64(1):
            result, overflowed = multiply_unsigned(result, base)
            if overflowed:
                return result, OVERFLOW
        exponent >>= np.uint64(1)
        if exponent > np.uint64(0):
            base, overflowed = multiply_unsigned(base, base)
            if overflowed:
                return result, OVERFLOW
    return result, 0


@helper
def _unsigned(op, a, b):
    """Return (ordinal, failure) of an operation on two unsigned ordinals."""
    x, y = np.uint64(a ^ _MIN), np.uint64(b ^ _MIN)
    failure = 0
    result = np.uint64(0)
    if op == _U_ADD:
        result = x + y
        if result < x:
            failure = OVERFLOW
    elif op == _U_SUB:
        result = x - y
        if x < y:
            failure = OVERFLOW
    elif op == _U_MUL:
        result, overflowed = multiply_unsigned(x, y)
        if overflowed:
            failure = OVERFLOW
    elif op == _U_POW:
        result, failure = _u_power(x, y)
    elif y == np.uint64(0):
        failure = DIVISION
    elif op == _U_DIV:
        result = x // y
    else:
        result = x % y
    return np.int64(result) ^ _MIN, failure


@njit(cache=True, error_model="numpy")
def _floating(op, a, b):
    """Return the ordinal of an operation on two float ordinals, by IEEE 754."""
    x, y = float_from_ordinal(a), float_from_ordinal(b)
    if op == _F_ADD:
        return ordinal_from_float(x + y)
    if op == _F_SUB:
        return ordinal_from_float(x - y)
    if op == _F_MUL:
        return ordinal_from_float(x * y)
    if op == _F_DIV:
        return ordinal_from_float(x / y)
    return ordinal_from_float(-x)


@helper
def _bits(op, a, b):
    """Return the result of an operation on bit patterns; shifts use six bits of the distance."""
    if op == _BAND:
        return a & b
    if op == _BOR:
        return a | b
    if op == _BXOR:
        return a ^ b
    if op == _BNOT:
        return ~a
    if op == _BSHL:
        return a << (b & 63)
    if op == _BSHR:
        return a >> (b & 63)
    if op == _BSHRU:
        return np.int64(np.uint64(a) >> np.uint64(b & 63))
    if op == _LAND:
        return np.int64(a != 0 and b != 0)
    if op == _LOR:
        return np.int64(a != 0 or b != 0)
    if op == _LXOR:
        return np.int64((a != 0) != (b != 0))
    if op == _LNOT:
        return np.int64(a == 0)
    return a ^ _MIN  # FLIP


@helper
def _convert(op, a):
    """Return (ordinal, failure) of a conversion between kinds of numbers."""
    if op == _N_TO_F:
        return ordinal_from_float(np.float64(a)), 0
    if op == _U_TO_F:
        return ordinal_from_float(np.float64(np.uint64(a ^ _MIN))), 0
    if op == _N_TO_U:
        return a ^ _MIN, 0 if a >= 0 else OVERFLOW
    if op == _U_TO_N:
        return a ^ _MIN, 0 if (a ^ _MIN) >= 0 else OVERFLOW
    value = float_from_ordinal(a)
    if not np.isfinite(value):
        return np.int64(0), CONVERSION
    value = np.trunc(value)
    if op == _F_TO_N:
        if value < -_TWO_63 or value >= _TWO_63:
            return np.int64(0), OVERFLOW
        return np.int64(value), 0
    if value < 0.0 or value >= _TWO_64:
        return np.int64(0), OVERFLOW
    return np.int64(np.uint64(value)) ^ _MIN, 0


@helper
def run_code(code, start, stop, slots):
    """Run the instructions [start, stop); return 0, or the first failure."""
    for i in range(start, stop):
        op, into = code[i, 0], code[i, 1]
        a = slots[code[i, 2]]
        if op == _ADD_CONST:
            slots[into] = wrapped_add(a, code[i, 3])
            continue
        b = slots[code[i, 3]]
        if op == _MOVE:
            slots[into] = a
        elif op == _EQ:
            slots[into] = a == b
        elif op == _NE:
            slots[into] = a != b
        elif op == _LT:
            slots[into] = a < b
        elif op == _LE:
            slots[into] = a <= b
        elif op == _OP_MIN:
            slots[into] = min(a, b)
        elif op == _OP_MAX:
            slots[into] = max(a, b)
        elif op == _ADD:
            total, overflowed = add(a, b)
            if overflowed:
                return OVERFLOW
            slots[into] = total
        elif op == _SUB:
            total, overflowed = subtract(a, b)
            if overflowed:
                return OVERFLOW
            slots[into] = total
        elif op == _MUL:
            total, overflowed = multiply(a, b)
            if overflowed:
                return OVERFLOW
            slots[into] = total
        elif op in (_DIV, _MOD):
            if b == 0:
                return DIVISION
            if b == -1:  # the one case in which the quotient can overflow
                if op == _DIV and a == _MIN:
                    return OVERFLOW
                slots[into] = -a if op == _DIV else 0
            else:
                quotient = _divide(a, b)
                slots[into] = quotient if op == _DIV else a - quotient * b
        elif op == _POW:
            total, failure = _power(a, b)
            if failure:
                return failure
            slots[into] = total
        elif op == _NEG:
            if a == _MIN:
                return OVERFLOW
            slots[into] = -a
        elif op < _F_ADD:
            total, failure = _unsigned(op, a, b)
            if failure:
                return failure
            slots[into] = total
        elif op <= _F_NEG:
            slots[into] = _floating(op, a, b)
        elif op <= _FLIP:
            slots[into] = _bits(op, a, b)
        elif op < _WITHIN:
            total, failure = _convert(op, a)
            if failure:
                return failure
            slots[into] = total
        elif op == _WITHIN:
            if a < b or a > slots[code[i, 3] + 1]:
                return OVERFLOW
            slots[into] = a
        else:  # LOOK_UP
            slots[into] = load64(b, a)
    return 0
