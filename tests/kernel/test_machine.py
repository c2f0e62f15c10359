"""The register machine against Python's exact numbers and the reference engine's functors.

The reference computes each operation on values of its type, the machine on their ordinals; `cases`
says which instruction stands for which functor.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.kernel.helpers import float_from_ordinal, ordinal_from_float, run_code
from tests.kernel.words import EDGES, LEAST, MOST
from tests.seeds import seeded
from tidelog.kernel.machine import (
    CONVERSION,
    DIVISION,
    OVERFLOW,
    Op,
)
from tidelog.reference import functors
from tidelog.store.codec import Codec, float_ordinal, float_value
from tidelog.values.scalars import NAN, canonical_float
from tidelog.values.types import FLOAT, NUMBER, UNSIGNED, Type

UNSIGNED_EDGES = [0, 1, 2, 3, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63,
                  2**63 + 1, 2**64 - 2, 2**64 - 1]  # fmt: skip
NUMBER_EDGES = [*EDGES, 3, -3, 63, 64, 65, -63, -64, 2**31 - 1, 2**32, 3037000499, 3037000500,
                -3037000500, 2**53 + 1, -(2**53) - 1, 2**62 - 1, 2**62 + 1]  # fmt: skip
FLOAT_EDGES = [0.0, 1.0, -1.0, 0.5, -0.5, -0.99, 1.5, 5e-324, -5e-324, 2.2250738585072014e-308,
               1.7976931348623157e308, -1.7976931348623157e308, math.inf, -math.inf, NAN, 2.0**53,
               2.0**62, 2.0**63, -(2.0**63), 2.0**64, math.nextafter(2.0**63, 0),
               math.nextafter(-(2.0**63), -math.inf), math.nextafter(2.0**64, 0), 0.1]  # fmt: skip

CODEC = Codec({})


def draw(rng: random.Random, type_: Type) -> Any:
    """Return a value, mostly at an edge or near one."""
    near = rng.randint(-2, 2) if rng.random() < 0.3 else 0
    if type_ == NUMBER:
        wide = rng.randint(LEAST, MOST) >> rng.randrange(64)
        return max(LEAST, min(rng.choice([*NUMBER_EDGES, wide, wide]) + near, MOST))
    if type_ == UNSIGNED:
        wide = rng.randrange(2**64) >> rng.randrange(64)
        return max(0, min(rng.choice([*UNSIGNED_EDGES, wide, wide]) + near, 2**64 - 1))
    bits = struct.pack("<Q", rng.randrange(2**64))
    whole = float(rng.randint(LEAST, MOST) >> rng.randrange(64)) / rng.choice([1, 2, 3])
    return canonical_float(rng.choice([*FLOAT_EDGES, struct.unpack("<d", bits)[0], whole, whole]))


def execute(op: Op, *slots: int) -> tuple[int, int]:
    """Run one instruction on ordinals; return (result, failure)."""
    untouched = 12345
    array = np.array([untouched, *slots], np.int64)
    code = np.array([[op, 0, 1, 2 if len(slots) > 1 else 0]], np.int64)
    before = array.copy()
    failure = run_code(code, 0, 1, array)
    assert np.array_equal(array[1:], before[1:])
    if failure:
        assert array[0] == untouched
    return int(array[0]), failure


class Case(NamedTuple):
    """An instruction, the functor that it is, the types of its arguments and that of its result."""

    op: Op
    functor: str
    types: tuple[Type, ...]
    result: Type


def cases() -> list[Case]:
    out = []
    for name in ("add", "sub", "mul", "div", "mod", "pow"):
        out.append(Case(Op[name.upper()], name, (NUMBER, NUMBER), NUMBER))
        out.append(Case(Op[f"U_{name.upper()}"], name, (UNSIGNED, UNSIGNED), UNSIGNED))
    for name in ("add", "sub", "mul", "div"):
        out.append(Case(Op[f"F_{name.upper()}"], name, (FLOAT, FLOAT), FLOAT))
    out.append(Case(Op.NEG, "neg", (NUMBER,), NUMBER))
    out.append(Case(Op.F_NEG, "neg", (FLOAT,), FLOAT))
    for name in ("band", "bor", "bxor", "bshl", "bshr", "bshru", "land", "lor", "lxor"):
        out.append(Case(Op[name.upper()], name, (NUMBER, NUMBER), NUMBER))
    out.append(Case(Op.BNOT, "bnot", (NUMBER,), NUMBER))
    out.append(Case(Op.LNOT, "lnot", (NUMBER,), NUMBER))
    for op, name, source, target in (
        (Op.N_TO_F, "to_float", NUMBER, FLOAT),
        (Op.U_TO_F, "to_float", UNSIGNED, FLOAT),
        (Op.F_TO_N, "to_number", FLOAT, NUMBER),
        (Op.F_TO_U, "to_unsigned", FLOAT, UNSIGNED),
        (Op.N_TO_U, "to_unsigned", NUMBER, UNSIGNED),
        (Op.U_TO_N, "to_number", UNSIGNED, NUMBER),
    ):
        out.append(Case(op, name, (source,), target))
    for type_ in (NUMBER, UNSIGNED, FLOAT):
        out.append(Case(Op.MIN, "min", (type_, type_), type_))
        out.append(Case(Op.MAX, "max", (type_, type_), type_))
    return out


def failure_code(failure: functors.FunctorFailure) -> int:
    text = str(failure)
    if text.startswith("division by zero"):
        return DIVISION
    return CONVERSION if "is not a whole number" in text else OVERFLOW


def edges(type_: Type) -> list[Any]:
    return {NUMBER: NUMBER_EDGES, UNSIGNED: UNSIGNED_EDGES, FLOAT: FLOAT_EDGES}[type_]


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.op.name}-{case.types[0]}")
def test_instructions_compute_what_the_reference_does(case: Case) -> None:
    rng = seeded(case.op.name)
    pairs = [[]]
    for type_ in case.types:
        pairs = [[*args, value] for args in pairs for value in edges(type_)]
    drawn = [[draw(rng, type_) for type_ in case.types] for _ in range(2000)]
    encoders = [CODEC.encoder(type_) for type_ in case.types]
    encode, decode = CODEC.encoder(case.result), CODEC.decoder(case.result)
    for args in pairs + drawn:
        got, failure = execute(case.op, *(e(a) for e, a in zip(encoders, args, strict=True)))
        try:
            expected = functors.apply(case.functor, args, list(case.types), case.result, {})
        except functors.FunctorFailure as reason:
            assert failure == failure_code(reason), (args, reason)
        else:
            assert failure == 0, args
            assert got == encode(expected), (args, decode(got), expected)


UNSIGNED_BITS = ["band", "bor", "bxor", "bnot", "bshl", "bshr", "land", "lor", "lxor", "lnot"]


@pytest.mark.parametrize("name", UNSIGNED_BITS)
def test_bits_of_unsigned_numbers_are_flipped_ordinals(name: str) -> None:
    rng = seeded(name)
    op = Op.BSHRU if name == "bshr" else Op[name.upper()]
    arity = 1 if name in ("bnot", "lnot") else 2
    encode = CODEC.encoder(UNSIGNED)
    for _ in range(1000):
        args = [draw(rng, UNSIGNED) for _ in range(arity)]
        patterns = [execute(Op.FLIP, encode(arg))[0] for arg in args]
        got, _ = execute(Op.FLIP, execute(op, *patterns)[0])
        expected = functors.apply(name, args, [UNSIGNED] * arity, UNSIGNED, {})
        assert got == encode(expected), args


@pytest.mark.parametrize(
    ("op", "holds"),
    [
        (Op.EQ, lambda a, b: a == b),
        (Op.NE, lambda a, b: a != b),
        (Op.LT, lambda a, b: a < b),
        (Op.LE, lambda a, b: a <= b),
    ],
    ids=["EQ", "NE", "LT", "LE"],
)
@pytest.mark.parametrize("type_", [NUMBER, UNSIGNED, FLOAT], ids=str)
def test_one_comparison_serves_all_types(
    op: Op, holds: Callable[[Any, Any], bool], type_: Type
) -> None:
    def exact(value: Any) -> tuple[int, Fraction]:
        if not math.isfinite(value):  # NaN is the largest, and equal to itself
            return (-1 if value < 0 else 1 if value > 0 else 2), Fraction(0)
        return 0, Fraction(value)

    encode = CODEC.encoder(type_)
    for a in edges(type_):
        for b in edges(type_):
            expected = holds(exact(a), exact(b))
            assert execute(op, encode(a), encode(b)) == (expected, 0), (a, b)


def test_moving_and_adding_constants() -> None:
    for value in EDGES:
        assert execute(Op.MOVE, value) == (value, 0)
    for value in EDGES:
        for constant in EDGES:
            slots = np.array([0, value], np.int64)
            code = np.array([[Op.ADD_CONST, 0, 1, constant]], np.int64)
            assert run_code(code, 0, 1, slots) == 0
            wrapped = (value + constant - LEAST) % 2**64 + LEAST
            assert slots.tolist() == [wrapped, value]


@pytest.mark.parametrize("value", EDGES)
def test_within(value: int) -> None:
    for low, high in [(-1, 1), (LEAST, MOST), (LEAST, 0), (0, MOST), (5, 4), (value, value)]:
        got, failure = execute(Op.WITHIN, value, low, high)
        assert failure == (0 if low <= value <= high else OVERFLOW)
        assert failure or got == value


def test_looking_up() -> None:
    table = np.array(EDGES, np.int64)
    address = table.__array_interface__["data"][0]
    assert [execute(Op.LOOK_UP, i, address)[0] for i in range(len(EDGES))] == EDGES


def test_floats_and_ordinals_as_the_codec_has_them() -> None:
    rng = seeded("floats")
    for value in [*FLOAT_EDGES, -0.0, *(draw(rng, FLOAT) for _ in range(2000))]:
        ordinal = float_ordinal(value)
        assert ordinal_from_float(value) == ordinal
        assert repr(float_from_ordinal(ordinal)) == repr(float_value(ordinal))


def test_code_runs_in_order_and_stops_at_the_first_failure() -> None:
    slots = np.array([7, 2, 0, 0, 0], np.int64)
    code = np.array(
        [
            [Op.ADD, 2, 0, 1],  # 9
            [Op.MUL, 2, 2, 2],  # 81: a slot may be its own argument
            [Op.DIV, 3, 2, 4],  # by zero
            [Op.MOVE, 4, 2, 0],
        ],
        np.int64,
    )
    assert run_code(code, 0, 4, slots) == DIVISION
    assert slots.tolist() == [7, 2, 81, 0, 0]
    assert run_code(code, 3, 4, slots) == 0
    assert slots.tolist() == [7, 2, 81, 0, 81]
    assert run_code(code, 2, 2, slots) == 0


def test_the_constants_of_the_switch_are_the_opcodes() -> None:
    from tidelog.kernel import machine

    for op in Op:
        name = f"_OP_{op.name}" if op in (Op.MIN, Op.MAX) else f"_{op.name}"
        assert getattr(machine, name) == op
