"""Registering aggregates: names, types, and laws with counterexamples."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import tidelog
from tidelog import Group, Semigroup, SetFunction
from tidelog.logic import registry


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    yield
    for name in registry.registered():
        tidelog.forget_aggregate(name)


NUMBERS = {"takes": "number", "gives": "number"}
ADD = Group(operator.add, operator.neg, 0)


def refused(algebra: Any, name: str = "mine", **options: Any) -> str:
    with pytest.raises(tidelog.UsageError) as raised:
        tidelog.aggregate(name, algebra, **(NUMBERS | options))
    assert name not in registry.registered() or name == "taken"
    return str(raised.value)


# --- laws -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algebra", "message"),
    [
        (
            Semigroup(operator.sub),
            "is not associative: combine(combine(0, 0), 1) is -1, but combine(0, combine(0, 1))"
            " is 1",
        ),
        (Semigroup(lambda a, b: (a + b) // 2), "is not associative: "),
        (Group(operator.sub, operator.neg, 0), "is not associative: add(add(0, 0), 1) is -1"),
        (Group(lambda a, b: a, operator.neg, 0), "is not commutative: add(0, 1) is 0"),
        (Group(operator.add, operator.neg, 1), "has a zero that changes values: add(0, 1) is 1"),
        (
            Group(operator.add, abs, 0),
            "does not take away what it adds: add(1, negate(1)) is 2, but 0 is 0",
        ),
        (Group(max, operator.neg, 0), "has a zero that changes values: add(-1, 0) is 0"),
    ],
)
def test_broken_laws(algebra: Any, message: str) -> None:
    assert f"aggregate `mine` {message}" in refused(algebra)


def test_floats_are_no_group() -> None:
    message = refused(Group(operator.add, operator.neg, 0.0), takes="float", gives="float")
    assert "is not associative: add(add(" in message


def test_samples_find_what_the_usual_ones_do_not() -> None:
    def odd(a: int, b: int) -> int:
        return a - b if 1000 in (a, b) else a + b

    tidelog.aggregate("unseen", Semigroup(odd), **NUMBERS)
    assert "is not associative: " in refused(Semigroup(odd), samples=[1000])


def test_laws_hold_for_what_is_lifted() -> None:
    lift = {"takes": "symbol", "gives": "number"}
    tidelog.aggregate("letters", Group(operator.add, operator.neg, 0, lift=len), **lift)
    assert "is not associative" in refused(Semigroup(operator.sub, lift=len), **lift)


@pytest.mark.parametrize(
    ("algebra", "types"),
    [
        (ADD, ("number", "number")),
        (Semigroup(math.gcd), ("unsigned", "unsigned")),
        (Semigroup(operator.add), ("symbol", "symbol")),
        (Semigroup(operator.or_), ("set(number)", "set(number)")),
        (Semigroup(max), ("date", "date")),
        (Semigroup(min), ("timestamp", "timestamp")),
        (Group(operator.xor, lambda a: a, False), ("bool", "bool")),
        (Group(operator.add, operator.neg, Decimal("0.00")), ("decimal(9, 2)",) * 2),
        (SetFunction(len), ("set(set(symbol))", "number")),
        (SetFunction(lambda s: math.fsum(s) / len(s)), ("float", "float")),
        (SetFunction(lambda s: 1 // min(s)), ("number", "number")),  # fails on some samples
    ],
)
def test_what_keeps_its_laws(algebra: Any, types: tuple[str, str]) -> None:
    tidelog.aggregate("mine", algebra, takes=types[0], gives=types[1])
    assert "mine" in registry.registered()


# --- results and samples --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algebra", "options", "message"),
    [
        (SetFunction(len), {"gives": "symbol"}, "gives a wrong result of frozenset({0}): 1 is not"),
        (Semigroup(lambda a, b: str(a)), {}, "gives a wrong result of 0, 0: '0' is not a number"),
        (Group(operator.add, operator.neg, "0"), {}, "gives a wrong result: '0' is not a number"),
        (Semigroup(max, lift=str), {}, "gives a wrong result of 0: '0' is not a number"),
        (Semigroup(max), {"samples": ["x"]}, "was given a wrong sample: 'x' is not a number"),
        (SetFunction(lambda s: 1 // 0), {}, "fails on all samples of `number`"),
        (
            SetFunction(lambda s: 1 // min(s)),
            {"samples": [0]},
            "fails on the samples frozenset({0}): ZeroDivisionError",
        ),
        (Semigroup(max), {"gives": "symbol"}, "it needs a `lift` from one to the other"),
    ],
)
def test_wrong_results(algebra: Any, options: dict[str, Any], message: str) -> None:
    assert message in refused(algebra, **options)


# --- names and types ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["count", "setof", "strlen", "band", "nil", "number", "match", "_"]
)
def test_words_of_the_language(name: str) -> None:
    assert "that is a word of the language" in refused(ADD, name)


@pytest.mark.parametrize("name", ["", "a b", "1st", "x-y", "naïve"])
def test_what_is_no_name(name: str) -> None:
    assert "is not a valid aggregate name" in refused(ADD, name)


def test_a_name_is_taken_once() -> None:
    tidelog.aggregate("taken", ADD, **NUMBERS)
    assert "is registered already" in refused(Semigroup(max), "taken")
    tidelog.aggregate("taken", Semigroup(max), **NUMBERS, replace=True)
    assert isinstance(registry.registered()["taken"].algebra, Semigroup)
    tidelog.forget_aggregate("taken")
    tidelog.aggregate("taken", ADD, **NUMBERS)


def test_forgetting() -> None:
    tidelog.aggregate("product", Semigroup(operator.mul), **NUMBERS)
    with pytest.raises(tidelog.UsageError, match="did you mean `product`"):
        tidelog.forget_aggregate("produkt")
    tidelog.forget_aggregate("product")
    with pytest.raises(tidelog.ProgramError, match="there is no aggregate `product`"):
        tidelog.Program.parse(PROGRAM)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nummer", "`takes` is not a type: type `nummer` is not declared"),
        ("decimal(99, 2)", "`takes` is not a type: "),
        ("Pair", "`takes` is not a type: 'Pair'"),
        ("number) .decl s(x: number", "`takes` is not a type: "),
    ],
)
def test_wrong_types(text: str, message: str) -> None:
    assert message in refused(SetFunction(len), takes=text)


def test_what_is_no_algebra() -> None:
    assert "an algebra is a Group, a Semigroup or a SetFunction, not builtin" in refused(max)


# --- programs -------------------------------------------------------------------------------------

PROGRAM = """
    .decl r(g: number, v: number)
    .decl product(g: number, x: number)
    product(g, x) :- r(g, _), x = product v : { r(g, v) }.
"""


def test_a_relation_of_the_same_name() -> None:
    tidelog.aggregate("product", Semigroup(operator.mul), **NUMBERS)
    with pytest.raises(tidelog.ProgramError) as raised:
        tidelog.Program.parse(PROGRAM)
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == "duplicate-relation"
    assert diagnostic.span is not None and diagnostic.span.line == 4
    fine = ".decl product(g: number)\nproduct(1).\nproduct(x + 1) :- product(x), x < 3."
    assert len(tidelog.Database(fine).view("product")) == 3


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("p(x) :- x = letters v : { r(v, _) }.", "`letters` takes a `symbol`, but `v` is"),
        ('p(x) :- x = letters "a" : { r(_, x) }.', "`letters` gives"),
        ("p(x) :- x = letters : { r(_, _) }.", "`letters` needs something to aggregate"),
        ("p(letters(1)) :- r(_, _).", "an aggregate is written `letters x : { conditions }`"),
    ],
)
def test_mistakes_in_programs(rule: str, message: str) -> None:
    algebra = Group(operator.add, operator.neg, 0, lift=len)
    tidelog.aggregate("letters", algebra, takes="symbol", gives="number")
    text = f".decl r(v: number, w: symbol)\n.decl p(x: number)\n{rule}"
    with pytest.raises(tidelog.ProgramError) as raised:
        tidelog.Program.parse(text)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "term", ["product v", "product (v)", "product -v", "product (v + 1) * 2", "product max(v, 1)"]
)
def test_the_ways_to_write_it(term: str) -> None:
    tidelog.aggregate("product", Semigroup(operator.mul), **NUMBERS)
    text = f"""
        .decl r(v: number)
        .decl p(product: number)
        p(product) :- product = {term} : {{ r(v) }}, !r(product).
        r(2). r(3).
    """
    kernel, reference = (
        set(tidelog.Database(text, engine=engine).view("p")) for engine in ("kernel", "reference")
    )
    assert kernel == reference and len(kernel) == 1
