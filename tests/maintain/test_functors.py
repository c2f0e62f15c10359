"""Functors on batches of ordinals agree with the reference, row by row and reason by reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.kernel.helpers import run_code
from tests.samples import sample
from tests.seeds import seeded
from tests.typed_values import LIST, RECORDS, TYPES, UNIT, deep_list, values
from tidelog.join import functors
from tidelog.join.functor_code import FunctorCode
from tidelog.join.functors import batches, ranges
from tidelog.logic.functors import CALLS, INFIX, PREFIX, Uniform
from tidelog.plan.body import FunctorCall
from tidelog.reference import functors as reference
from tidelog.store.codec import Codec
from tidelog.values.order import sort_key
from tidelog.values.text import format_value
from tidelog.values.types import (
    BOOL,
    DATE,
    FLOAT,
    NUMBER,
    NUMBER_MAX,
    NUMBER_MIN,
    SYMBOL,
    TIMESTAMP,
    UNSIGNED,
    UNSIGNED_MAX,
    Kind,
    Type,
    decimal_type,
)

# For each of hundreds of functors and types; `make test-long` tries more.
QUICK = settings(max_examples=sample(12, 400))

Case = tuple[str, tuple[Type, ...], Type]
Row = tuple[Any, ...]

DECIMALS = [decimal_type(9, 2), decimal_type(18, 0), decimal_type(18, 18), decimal_type(5, 3)]
ALL_TYPES = [*TYPES, *DECIMALS[1:]]


def signatures() -> Iterator[Case]:
    """Yield every functor with every combination of types that the language allows."""
    for signature in [*INFIX.values(), *PREFIX.values(), *CALLS.values()]:
        if isinstance(signature, Uniform):
            for type_ in ALL_TYPES:
                if type_.kind in signature.kinds:
                    for arity in {signature.least, signature.most or 3}:
                        yield signature.op, (type_,) * arity, type_
            continue
        results = DECIMALS if signature.result is None else [signature.result]
        for result in results:
            if len(signature.arguments) == 1:
                for type_ in ALL_TYPES:
                    if type_.kind in signature.arguments[0]:
                        yield signature.op, (type_,), result
            else:
                types = {Kind.SYMBOL: SYMBOL, Kind.NUMBER: NUMBER}
                args = tuple(types[next(iter(kinds))] for kinds in signature.arguments)
                yield signature.op, args, result
    yield "cat", (SYMBOL,) * 4, SYMBOL
    for moved in (DATE, TIMESTAMP):
        yield "add", (moved, NUMBER), moved
        yield "add", (NUMBER, moved), moved
        yield "sub", (moved, NUMBER), moved
        yield "sub", (moved, moved), NUMBER


def shown(case: Case) -> str:
    return f"{case[0]}({','.join(map(str, case[1]))})->{case[2]}"


CASES = sorted(set(signatures()), key=shown)
MACHINE = [case for case in CASES if not functors.needs_python(*case)]

SMALL = st.integers(-70, 70)
DIGITS = st.integers(0, 10**20).map(str)
# Text that often is a value of some type, or nearly one.
VALUE_TEXT = st.one_of(
    DIGITS,
    st.builds("{}.{}e{}".format, st.integers(-999, 999), st.integers(0, 9999), SMALL),
    st.sampled_from(["0x1F", "0b11", " 7", "7 ", "-0", "", "nan", "-inf", "1e400", "1e-400"]),
    st.sampled_from(["2024-02-30", "2024-02-29", "0001-01-01 00:00:00+10:00"]),
    st.one_of(values(DATE), values(TIMESTAMP), values(FLOAT)).map(str),
)


def arguments(type_: Type) -> st.SearchStrategy[Any]:
    """Return values of a type, with more of those at which functors change their behaviour."""
    match type_.kind:
        case Kind.NUMBER:
            edges = st.sampled_from([0, 1, -1, NUMBER_MIN, NUMBER_MAX])
            return st.one_of(SMALL, edges, values(type_))
        case Kind.UNSIGNED:
            edges = st.sampled_from([0, 1, 2, 2**63, UNSIGNED_MAX])
            return st.one_of(SMALL.map(abs), edges, values(type_))
        case Kind.FLOAT:
            edges = st.sampled_from([0.0, 0.5, -0.5, 2.0**63, -(2.0**63), 2.0**64, 0.125, 5e-324])
            return st.one_of(SMALL.map(float), edges, values(type_))
        case Kind.DECIMAL:
            small = SMALL.map(lambda i: Decimal(i).scaleb(-type_.scale))
            largest = 10**type_.precision - 1
            units = st.integers(-largest // 10**type_.scale, largest // 10**type_.scale)
            whole = units.map(lambda i: Decimal(i * 10**type_.scale).scaleb(-type_.scale))
            fits = whole.filter(lambda d: abs(int(d.scaleb(type_.scale))) <= largest)
            return st.one_of(small, fits, values(type_))
        case Kind.SYMBOL:
            return st.one_of(VALUE_TEXT, values(type_))
        case _:
            return values(type_)


def unreadable(op: str, args: Row, result: Type) -> bool:
    """Return whether the reference's 80 digits do not hold the number."""
    huge = isinstance(args[0], float) and math.isfinite(args[0]) and abs(args[0]) > 1e60
    return op == "to_decimal" and huge and result.kind is Kind.DECIMAL


def expected(op: str, args: Row, types: Sequence[Type], result: Type) -> tuple[Any, str | None]:
    """Return the value that the reference gives, or why it gives none."""
    if op == "record":
        return args, None
    if unreadable(op, args, result):
        return None, f"{format_value(args[0], FLOAT, RECORDS)} overflows `{result}`"
    try:
        return reference.apply(op, list(args), list(types), result, RECORDS), None
    except reference.FunctorFailure as failure:
        return None, str(failure)


def columns(rows: Sequence[Row], types: Sequence[Type], codec: Codec) -> list[NDArray[np.int64]]:
    if not rows:
        return [np.empty(0, np.int64) for _ in types]
    return list(codec.encode_rows(rows, types))


def same(left: Any, right: Any) -> bool:
    """Return whether two values are one, to the sign of zero and the digits of decimals."""
    return left is right or (
        left == right and type(left) is type(right) and str(left) == str(right)
    )


def check(case: Case, rows: Sequence[Row]) -> None:
    op, types, result = case
    codec = Codec(RECORDS)
    args = columns(rows, types, codec)
    before = [arg.copy() for arg in args]
    ordinals, failed, reason = functors.apply(op, args, types, result, codec)
    assert ordinals.dtype == np.int64
    assert failed.dtype == np.bool_
    assert ordinals.shape == failed.shape == (len(rows),)
    assert all(np.array_equal(a, b) for a, b in zip(args, before, strict=True))
    decode, encode = codec.decoder(result), codec.encoder(result)
    for i, row in enumerate(rows):
        value, why = expected(op, row, types, result)
        assert bool(failed[i]) == (why is not None), (row, why)
        if why is not None:
            assert reason(i) == why
        else:
            got = decode(int(ordinals[i]))
            if result.kind in (Kind.RECORD, Kind.SET):
                assert got == value or sort_key(result, RECORDS)(got) == sort_key(result, RECORDS)(
                    value
                )
            else:
                assert same(got, value), (row, got, value)
            assert encode(value) == ordinals[i]  # equal values have equal ordinals


def repeated(rows: list[Row], count: int) -> list[Row]:
    """Return a batch in which each of `rows` occurs several times, in no order."""
    shuffled = (rows * (count // len(rows) + 1))[:count]
    seeded("repeated", count).shuffle(shuffled)
    return shuffled


def row_strategy(types: Sequence[Type], most: int = 8) -> st.SearchStrategy[list[Row]]:
    return st.lists(st.tuples(*map(arguments, types)), min_size=1, max_size=most)


# --- apply ---


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_apply_agrees_with_the_reference(case: Case) -> None:
    @QUICK
    @given(row_strategy(case[1]), st.booleans())
    def run(rows: list[Row], large: bool) -> None:
        check(case, repeated(rows, 100) if large else rows)

    run()


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_an_empty_batch_gives_an_empty_batch(case: Case) -> None:
    check(case, [])


RECORD_CASES: list[Case] = [
    ("record", tuple(f.type for f in fields), next(t for t in TYPES if t.record == name))
    for name, fields in RECORDS.items()
    if fields
]


@pytest.mark.parametrize("case", RECORD_CASES, ids=shown)
def test_records_are_built_in_the_table_of_their_type(case: Case) -> None:
    @QUICK
    @given(row_strategy(case[1]), st.booleans())
    def run(rows: list[Row], large: bool) -> None:
        check(case, repeated(rows, 100) if large else rows)

    run()
    check(case, [])


def test_a_record_without_fields_is_told_the_number_of_rows() -> None:
    codec = Codec(RECORDS)
    for rows in (0, 1, 3, 200):
        ordinals, failed, _ = functors.apply("record", [], (), UNIT, codec, rows=rows)
        assert ordinals.tolist() == [codec.encoder(UNIT)(())] * rows
        assert failed.tolist() == [False] * rows


def test_long_lists_are_written_and_compared_without_recursion() -> None:
    long, longer = deep_list(20_000), deep_list(20_001)
    check(("to_string", (LIST,), SYMBOL), [(long,)])
    codec = Codec(RECORDS)
    a, b = columns([(long, longer)], (LIST, LIST), codec)
    assert functors.apply("max", [a, b], (LIST, LIST), LIST, codec)[0] == b
    assert functors.test("<", [a, b], (LIST, LIST), codec)[0].tolist() == [True]


@pytest.mark.parametrize(
    ("case", "rows"),
    [
        (
            ("substr", (SYMBOL, NUMBER, NUMBER), SYMBOL),
            [
                ("tidelog", start, length)
                for start in (-1, 0, 3, 7, 8, NUMBER_MIN, NUMBER_MAX)
                for length in (-1, 0, 2, 99, NUMBER_MIN, NUMBER_MAX)
            ],
        ),
        (
            ("pow", (FLOAT, FLOAT), FLOAT),
            [
                (a, b)
                for a in (0.0, 1.0, -1.0, 2.0, -2.0, 1e200, -1e200, math.inf, -math.inf, math.nan)
                for b in (0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, -0.5, 1e300, math.inf, -math.inf)
            ],
        ),
        (
            ("mul", (DECIMALS[0],) * 2, DECIMALS[0]),
            [(Decimal(a), Decimal("0.25")) for a in ("0.50", "1.50", "-0.50", "-1.50", "-0.01")],
        ),
        (
            ("div", (DECIMALS[0],) * 2, DECIMALS[0]),
            [
                (Decimal(a), Decimal(b))
                for a in ("0.00", "0.01", "-0.01", "0.03", "9999999.99", "-9999999.99")
                for b in ("0.00", "0.01", "-0.01", "2.00", "-2.00", "9999999.99")
            ],
        ),
        (
            ("add", (DATE, NUMBER), DATE),
            [(day, by) for day in (date.min, date.max) for by in (0, 1, -1, NUMBER_MAX)],
        ),
        (
            ("sub", (TIMESTAMP, NUMBER), TIMESTAMP),
            [(at, by) for at in (datetime.min, datetime.max) for by in (0, 1, -1, NUMBER_MIN)],
        ),
        (
            ("pow", (NUMBER, NUMBER), NUMBER),
            [
                (base, exponent)
                for base in (-10, -2, -1, 0, 1, 2, 10)
                for exponent in (-2, -1, 0, 1, 62, 63, 64, 65, NUMBER_MIN, NUMBER_MAX)
            ],
        ),
        (
            ("to_unsigned", (DECIMALS[0],), UNSIGNED),
            [(Decimal(a),) for a in ("-0.99", "-1.00", "0.99", "1.99")],
        ),
        (
            ("to_decimal", (FLOAT,), DECIMALS[0]),
            [
                (v,)
                for v in (1e300, -1e78, 9999999.994, 9999999.995, 9999999.996, 0.125, -0.001)
            ],
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)  # fmt: skip
def test_edges_agree_with_the_reference(case: Case, rows: list[Row]) -> None:
    check(case, rows)


# --- the machine does the rest ---


@pytest.mark.parametrize("case", MACHINE, ids=shown)
def test_what_is_not_external_has_machine_code_that_agrees(case: Case) -> None:
    op, types, result = case
    codec = Codec(RECORDS)
    code: list[tuple[int, int, int, int]] = []
    slots = [0] * len(types)

    def number(value: int) -> int:
        slots.append(value)
        return len(slots) - 1

    value = FunctorCall(op, tuple("abc"[: len(types)]), types, result, True, False)
    into = FunctorCode(code, lambda: number(0), number).add(value, list(range(len(types))))
    program = np.array(code, np.int64).reshape(-1, 4)

    @QUICK
    @given(row_strategy(types))
    def run(rows: list[Row]) -> None:
        args = columns(rows, types, codec)
        ordinals, failed, _ = functors.apply(op, args, types, result, codec)
        for i in range(len(rows)):
            memory = np.array(slots, np.int64)
            memory[: len(types)] = [arg[i] for arg in args]
            assert bool(run_code(program, 0, len(program), memory)) == bool(failed[i])
            assert failed[i] or memory[into] == ordinals[i]

    run()


def test_which_functors_are_external() -> None:
    always = {"cat", "strlen", "substr", "ord", "to_string", "to_date", "to_timestamp"}
    always.add("to_decimal")
    for op, types, result in CASES:
        kind = types[0].kind
        external = (
            op in always
            or (op in ("min", "max") and kind in (Kind.SYMBOL, Kind.RECORD, Kind.SET))
            or (op.startswith("to_") and kind in (Kind.SYMBOL, Kind.DECIMAL))
            or (op in ("mul", "div") and kind is Kind.DECIMAL)
            or (op == "pow" and kind is Kind.FLOAT)
        )
        assert functors.needs_python(op, types, result) == external, shown((op, types, result))
    assert functors.needs_python("record", (), UNIT)
    assert functors.needs_python("match", (SYMBOL, SYMBOL), BOOL)


# --- test ---

PATTERNS = st.one_of(
    st.sampled_from([".*", "a|b", "[ab]*", "a(b", "*", "[[a]", "a{2", "(?P<x>a)(?P=x)", "\\", ""]),
    st.text("ab.*+?()[]|^$\\", max_size=6),
)


def check_test(op: str, rows: Sequence[Row], types: tuple[Type, Type], codec: Codec) -> None:
    holds, failed, reason = functors.test(op, columns(rows, types, codec), types, codec)
    assert holds.dtype == failed.dtype == np.bool_
    assert holds.shape == failed.shape == (len(rows),)
    key = sort_key(types[0], RECORDS)
    for i, row in enumerate(rows):
        if op in COMPARISONS:
            assert not failed[i]
            assert bool(holds[i]) == COMPARISONS[op](key(row[0]), key(row[1]))
            continue
        try:
            assert reference.test(op, list(row)) == bool(holds[i])
            assert not failed[i]
        except reference.FunctorFailure as failure:
            assert failed[i]
            assert not holds[i]
            assert reason(i) == str(failure)


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


@pytest.mark.filterwarnings("ignore::FutureWarning")  # of odd patterns, in the reference
@pytest.mark.parametrize("op", ["match", "contains"])
def test_tests_of_text_agree_with_the_reference(op: str) -> None:
    first = PATTERNS if op == "match" else st.text("ab", max_size=2)

    @given(st.lists(st.tuples(first, st.text("ab(", max_size=6)), min_size=1), st.booleans())
    def run(rows: list[Row], large: bool) -> None:
        check_test(op, repeated(rows, 100) if large else rows, (SYMBOL, SYMBOL), Codec(RECORDS))

    run()
    check_test(op, [], (SYMBOL, SYMBOL), Codec(RECORDS))


@pytest.mark.parametrize("pattern", ["a{99999999999999999999}", "(" * 5000 + ")" * 5000])
def test_a_pattern_too_large_to_compile_fails(pattern: str) -> None:
    codec = Codec(RECORDS)
    args = columns([(pattern, "a")], (SYMBOL, SYMBOL), codec)
    _, failed, reason = functors.test("match", args, (SYMBOL, SYMBOL), codec)
    assert failed.tolist() == [True]
    assert reason(0).startswith(f"`{pattern}` is not a regular expression: ")


@pytest.mark.parametrize("type_", ALL_TYPES, ids=str)
def test_comparisons_follow_the_order_of_values(type_: Type) -> None:
    @QUICK
    @given(row_strategy((type_, type_)), st.booleans())
    def run(rows: list[Row], large: bool) -> None:
        rows = [*rows, (rows[0][0], rows[0][0])]
        rows = repeated(rows, 100) if large else rows
        for op in COMPARISONS:
            check_test(op, rows, (type_, type_), Codec(RECORDS))

    run()
    for op in COMPARISONS:
        check_test(op, [], (type_, type_), Codec(RECORDS))


# --- ranges ---


def check_ranges(rows: Sequence[Row], type_: Type, with_step: bool) -> None:
    codec = Codec(RECORDS)
    start, stop, step = columns(rows, (type_,) * 3, codec)
    index, ordinals, failed, reason = functors.expand_range(
        start, stop, step if with_step else None, type_, codec
    )
    assert index.dtype == ordinals.dtype == np.int64
    assert failed.shape == (len(rows),)
    decode = codec.decoder(type_)
    got: list[list[Any]] = [[] for _ in rows]
    assert index.tolist() == sorted(index.tolist())
    for i, ordinal in zip(index.tolist(), ordinals.tolist(), strict=True):
        got[i].append(decode(ordinal))
    for i, (first, last, by) in enumerate(rows):
        try:
            wanted = reference.number_range(first, last, by if with_step else None, type_)
            assert not failed[i]
            assert len(got[i]) == len(wanted)
            assert all(map(same, got[i], wanted))
        except reference.FunctorFailure as failure:
            assert failed[i]
            assert got[i] == []
            assert reason(i) == str(failure)


def few_integers(low: int, high: int) -> st.SearchStrategy[Row]:
    """Return ranges of at most some dozen integers, near zero and near the limits of the type."""
    near = st.one_of(
        SMALL, st.integers(-70, 0).map(lambda i: high + i), SMALL.map(lambda i: low + i)
    )

    def ranges(start: int) -> st.SearchStrategy[Row]:
        stops = st.integers(max(low, start - 40), min(high, start + 40))
        by = st.one_of(SMALL, st.sampled_from([low, high])).filter(lambda i: low <= i <= high)
        return st.tuples(st.just(start), stops, by)

    return near.filter(lambda i: low <= i <= high).flatmap(ranges)


def wide_integers(low: int, high: int) -> st.SearchStrategy[Row]:
    """Return ranges of few integers that lie far apart."""
    steps = st.sampled_from([high // 7, high, high - 1, low // 5, low, low + 1]).filter(
        lambda i: i != 0
    )
    return st.tuples(st.integers(low, high), st.integers(low, high), steps)


LIMITS = {NUMBER: (NUMBER_MIN, NUMBER_MAX), UNSIGNED: (0, UNSIGNED_MAX)}


@pytest.mark.parametrize("type_", LIMITS, ids=str)
def test_ranges_of_integers_agree_with_the_reference(type_: Type) -> None:
    limits = LIMITS[type_]

    @given(st.lists(few_integers(*limits), max_size=9), st.booleans())
    @example([(limits[0], limits[0] + 3, 1), (limits[1], limits[1] - 3, 1)], False)
    def few(rows: list[Row], with_step: bool) -> None:
        check_ranges(rows, type_, with_step)

    @given(st.lists(wide_integers(*limits), max_size=9))
    def wide(rows: list[Row]) -> None:
        check_ranges([row for row in rows if abs(row[2]) > 2**55], type_, True)

    few()
    wide()


@given(
    st.lists(
        st.one_of(
            st.tuples(
                st.floats(-50, 50),
                st.floats(-50, 50),
                st.one_of(st.floats(0.3, 9), st.floats(-9, -0.3), st.sampled_from([0.0, 1e-300])),
            ),
            st.tuples(
                st.sampled_from([0.0, math.inf, math.nan, -math.inf, 2.0**53 - 5]),
                st.sampled_from([3.0, math.inf, math.nan, -math.inf]),
                st.sampled_from([0.0, math.inf, math.nan, 1e307]),
            ),
            st.just((-1.7e308, 1.7e308, 1e308)),
            st.just((2.0**53 - 5, 2.0**53 + 5, 1.0)),
            st.just((0.0, 500.0, 0.1)),
        ),
        max_size=9,
    ),
    st.booleans(),
)
def test_ranges_of_floats_agree_with_the_reference(rows: list[Row], with_step: bool) -> None:
    # No billions of steps: of one, or of next to nothing from a start where it still counts.
    rows = [row for row in rows if row[2] != 1e-300 or abs(row[0]) > 1]
    if not with_step:
        rows = [row for row in rows if abs(row[0] - row[1]) < 1000 or not math.isfinite(row[0])]
    check_ranges([tuple(value + 0.0 for value in row) for row in rows], FLOAT, with_step)


@pytest.mark.parametrize("type_", [NUMBER, UNSIGNED, FLOAT], ids=str)
def test_no_ranges_give_no_numbers(type_: Type) -> None:
    check_ranges([], type_, True)
    check_ranges([], type_, False)


def test_a_range_of_all_numbers_is_refused_before_it_is_allocated() -> None:
    codec = Codec(RECORDS)
    start, stop = columns([(0, UNSIGNED_MAX)], (UNSIGNED, UNSIGNED), codec)
    with pytest.raises(MemoryError, match="18446744073709551615 numbers"):
        functors.expand_range(start, stop, None, UNSIGNED, codec)


# --- large batches: each distinct combination once ---


class Counter:
    """Counts the calls of a function that a factory makes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: ModuleType, factory: str) -> None:
        self.calls = 0
        make = getattr(module, factory)

        def counting(*args: Any) -> Callable[..., Any]:
            function = make(*args)

            def call(*values: Any) -> Any:
                self.calls += 1
                return function(*values)

            return call

        monkeypatch.setattr(module, factory, counting)


@pytest.mark.parametrize("size", [100, 19_999, 100_000])
def test_functors_are_computed_once_for_rows_that_are_alike(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    counter = Counter(monkeypatch, functors, "scalar_functor")
    rows = [(text, start, 2) for text in ("tide", "log", "") for start in (0, 1, 9)]
    check(("substr", (SYMBOL, NUMBER, NUMBER), SYMBOL), repeated(rows, size))
    assert counter.calls == len(rows)
    counter.calls = 0
    check(("to_number", (SYMBOL,), NUMBER), repeated([("1",), ("x",), ("-7",)], size))
    assert counter.calls == 3


def test_tests_are_computed_once_for_rows_that_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter(monkeypatch, functors, "scalar_test")
    rows = [("a*", "aa"), ("a*", "b"), ("(", "b")]
    check_test("match", repeated(rows, 100_000), (SYMBOL, SYMBOL), Codec(RECORDS))
    assert counter.calls == 3


@pytest.mark.parametrize("size", [10, 100_000])
def test_values_are_ranked_once_for_rows_that_are_alike(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    counter = Counter(monkeypatch, batches, "sort_key")
    rows = repeated([(deep_list(3), deep_list(n)) for n in range(5)], size)
    codec = Codec(RECORDS)
    args = columns(rows, (LIST, LIST), codec)
    functors.apply("min", args, (LIST, LIST), LIST, codec)
    assert counter.calls == 5
    holds, _, _ = functors.test(">=", args, (LIST, LIST), codec)
    assert counter.calls == 10
    assert np.count_nonzero(holds) == sum(n <= 3 for n in range(5)) * size // 5


def test_ranges_of_floats_are_computed_once_for_rows_that_are_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = 0
    original = ranges.float_range

    def counting(*args: float) -> Any:
        nonlocal calls
        calls += 1
        return original(*args)

    monkeypatch.setattr(ranges, "float_range", counting)
    check_ranges(repeated([(0.0, 2.0, 0.5), (1.0, 0.0, 0.0)], 30_000), FLOAT, True)
    assert calls == 2
