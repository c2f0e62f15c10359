"""Functions from Python: in both engines, row by row and vectorised, and where they are missing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidelog
from tests.seeds import seeded

PROGRAM = """
.decl p(x: float, n: symbol, k: number, d: decimal(6,2))
.decl q(x: float, n: symbol, r: number)
.decl r(n: symbol, d: decimal(6,2), total: number)
q(half(x), shout(n), @root(k)) :- p(x, n, k, _), k >= 0.
r(n, twice(d), t) :- p(_, n, _, d), !q(_, shout(n), _), t = sum root(k) : { p(_, n, k, _), k > 0 }.
"""


@pytest.fixture(autouse=True)
def functions() -> Iterator[None]:
    tidelog.function("half", lambda x: x / 2, "float -> float")
    tidelog.function("twice", lambda d: d + d, "decimal(6,2) -> decimal(6,2)")
    tidelog.function("shout", lambda n: n.astype(object) + "!", "symbol -> symbol", vectorised=True)
    tidelog.function("root", _roots, "number -> number", vectorised=True)
    yield
    for name in ("half", "twice", "shout", "root"):
        tidelog.forget_function(name)


def _roots(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    assert numbers.dtype == np.int64
    return np.array([math.isqrt(n) for n in numbers.tolist()])


def test_both_engines_agree() -> None:
    random = seeded("functions")
    kernel, reference = (tidelog.Database(PROGRAM, engine=name) for name in ("kernel", "reference"))
    rows = [
        (random.random(), random.choice("abcde"), random.randrange(-2, 200), random.randrange(9))
        for _ in range(300)
    ]
    present: list[Any] = []
    for _ in range(6):
        inserted = random.sample(rows, 90)
        deleted = random.sample(present, len(present) // 2)
        for db in (kernel, reference):
            with db.transaction() as tx:
                tx.delete("p", deleted)
                tx.insert("p", inserted)
        present = list(kernel.view("p"))
        assert present
        for name in ("q", "r"):
            assert list(kernel.view(name)) == list(reference.view(name))
    assert list(kernel.view("q"))


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_a_function_that_fails_names_rule_and_row(engine: str) -> None:
    text = ".decl p(k: number) .decl q(r: number) q(root(k)) :- p(k)."
    db = tidelog.Database(text, engine=engine)
    with (
        pytest.raises(tidelog.EvaluationError, match="function `root` failed: ValueError") as found,
        db.transaction() as tx,
    ):
        tx.insert("p", [(4,), (-4,), (9,)])
    assert found.value.values == {"k": -4}
    assert not list(db.view("q"))


@pytest.mark.parametrize("engine", ["kernel", "reference"])
@pytest.mark.parametrize(
    ("function", "vectorised", "message"),
    [
        (str, False, "function `wrong` gave a wrong result"),
        (lambda n: n[:0], True, "0 results for 1 rows"),
    ],
)
def test_wrong_results_are_errors_of_data(
    engine: str, function: Any, vectorised: bool, message: str
) -> None:
    tidelog.function("wrong", function, "number -> number", vectorised=vectorised)
    try:
        text = ".decl p(k: number) .decl q(r: number) q(wrong(k)) :- p(k)."
        db = tidelog.Database(text, engine=engine)
        with pytest.raises(tidelog.EvaluationError, match=message), db.transaction() as tx:
            tx.insert("p", [(4,)])
    finally:
        tidelog.forget_function("wrong")


def test_a_durable_database_is_not_opened_without_its_functions(tmp_path: Path) -> None:
    text = ".decl p(k: float) .decl q(r: float) q(half(k)) :- p(k)."
    with tidelog.Database(text, path=tmp_path / "state") as db, db.transaction() as tx:
        tx.insert("p", [(4.0,)])
    tidelog.forget_function("half")
    try:
        with pytest.raises(tidelog.ProgramError, match="there is no functor `half`") as found:
            tidelog.Database(text, path=tmp_path / "state")
        assert "tidelog.function" in str(found.value)
    finally:
        tidelog.function("half", lambda x: x / 2, "float -> float")
    with tidelog.Database(text, path=tmp_path / "state") as db:
        assert list(db.view("q")) == [(2.0,)]


@pytest.mark.parametrize(
    ("name", "types", "message"),
    [
        ("a b", "number -> number", "not a valid function name"),
        ("cat", "number -> number", "a word of the language"),
        ("f", "number", "`types` is written"),
        ("f", "numbr -> number", "`argument 1` is not a type"),
        ("f", "number -> ", "`result` is not a type"),
        ("half", "float -> float", "registered already"),
    ],
)
def test_registering_wrongly(name: str, types: str, message: str) -> None:
    with pytest.raises(tidelog.UsageError, match=message):
        tidelog.function(name, abs, types)


def test_forgetting_what_is_not_there() -> None:
    with pytest.raises(tidelog.UsageError, match="did you mean `half`"):
        tidelog.forget_function("hal")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("half(x, x)", "`half` takes 1 argument, not 2"),
        ('half("a")', "argument 1 of `half` is a `float`"),
        ("twice(x)", "argument 1 of `twice`"),
    ],
)
def test_calls_are_checked(call: str, message: str) -> None:
    with pytest.raises(tidelog.ProgramError) as found:
        tidelog.Program.parse(f".decl p(x: float) .decl q(x: float) q(x) :- p(x), {call} = x.")
    assert message in str(found.value)


def test_queries_take_functions_and_branches() -> None:
    shapes = ".type Shape = Circle { r: float } | Point {} .decl p(s: Shape)"
    db = tidelog.Database(f"{shapes}\np($Circle(3.0)). p($Point).")
    assert list(db.query("p($Circle(r)), h = half(r)")) == [(3.0, 1.5)]
