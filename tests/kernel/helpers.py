"""Helpers of kernels, for tests to call: the originals have no wrapper for Python."""

from __future__ import annotations

from numba import njit

from tidelog.kernel import machine


@njit
def run_code(code, start, stop, slots):  # type: ignore[no-untyped-def]
    return machine.run_code(code, start, stop, slots)


@njit
def float_from_ordinal(ordinal):  # type: ignore[no-untyped-def]
    return machine.float_from_ordinal(ordinal)


@njit
def ordinal_from_float(value):  # type: ignore[no-untyped-def]
    return machine.ordinal_from_float(value)
