"""`view.aggregate` after random epochs: the kernel's trees against the reference engine's rows."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

import tidelog
from tests.samples import until
from tests.seeds import seeded
from tidelog.database.database import kernel_of
from tidelog.store import index

PROGRAM = """
    .type Pair = [x: number, y: symbol]
    .decl r(g: number, s: symbol, d: date, n: number, u: unsigned, m: decimal(18, 2), f: float,
            p: Pair)
    .decl v(g: number, d: date, n: number)
    v(g, d, n) :- r(g, _, d, n, _, _, _, _), n > -5.
"""
WORDS = ["b", "a", "", "é", "ab", "Z"]
VALUES: dict[str, list[Any]] = {
    "g": [-3, 0, 1, 2, 2**40],
    "s": WORDS,
    "d": [dt.date(2024, 1, 1) + dt.timedelta(days=7 * i) for i in range(9)],
    "n": [-(2**63), -7, -1, 0, 3, 2**62, 2**63 - 1],
    "u": [0, 1, 2**63 - 1, 2**63, 2**64 - 1],
    "m": [Decimal("-9999999999999999.99"), Decimal("-0.50"), Decimal("0.00"), Decimal("1.25")],
    "f": [-math.inf, -1e300, -0.1, 0.0, 0.1, 0.2, 1e300, math.nan],
    "p": [None, (1, "a"), (1, "b"), (0, "z")],
}
COLUMNS = {"r": "gsdnumfp", "v": "gdn"}


def random_row(rng: random.Random) -> tuple[Any, ...]:
    return tuple(rng.choice(VALUES[column]) for column in COLUMNS["r"])


def random_question(rng: random.Random, view: str) -> tuple[str, str | None, dict[str, Any]]:
    columns = COLUMNS[view]
    op = rng.choice(["count", "min", "max", "sum", "mean", "path"])
    targets = [c for c in columns if op in ("min", "max") or c in "gnumf"]
    if op == "path":
        targets = ["g", "n"]
    where: dict[str, Any] = {}
    for column in rng.sample(columns, rng.randint(0, 3)):
        if rng.random() < 0.5:
            where[column] = rng.choice(VALUES[column])
        else:
            low, high = (rng.choice([None, *VALUES[column]]) for _ in range(2))
            where[column] = slice(low, high)
    return op, None if op == "count" else rng.choice(targets), where


@pytest.fixture(autouse=True)
def paths() -> Iterator[None]:
    """Register an aggregate that depends on the order of the rows."""
    tidelog.aggregate(
        "path", tidelog.Semigroup(lambda a, b: f"{a}{b}", lift=lambda n: f"<{n}>"),
        takes="number", gives="symbol",
    )  # fmt: skip
    yield
    tidelog.forget_aggregate("path")


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and math.isnan(a):
        return isinstance(b, float) and math.isnan(b)
    return type(a) is type(b) and bool(a == b)


@pytest.mark.parametrize("run_size", [4, index.SMALL])
def test_random_epochs(run_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = seeded(f"view aggregates {run_size}")
    monkeypatch.setattr(index, "SMALL", run_size)
    kernel = tidelog.Database(PROGRAM)
    plain = tidelog.Database(PROGRAM, engine="reference")
    held: set[tuple[Any, ...]] = set()
    answers = 0

    def is_enough() -> bool:
        return answers > 200

    for _ in until(is_enough, least=40, most=400):
        new = {random_row(rng) for _ in range(rng.choice([0, 3, 60]))}
        gone = set(rng.sample(sorted(held, key=repr), min(len(held), rng.choice([0, 2, 30]))))
        for db in (kernel, plain):
            with db.transaction() as tx:
                tx.insert("r", new - gone)
                tx.delete("r", gone - new)
        held = set(plain.view("r"))
        for _ in range(25):
            view = rng.choice("rrv")
            op, column, where = random_question(rng, view)
            found, wanted = (
                db.view(view).aggregate(op, *([column] if column else []), **where)
                for db in (kernel, plain)
            )
            assert same(found, wanted), (view, op, column, where)
            answers += found not in (0, None)
        kernel_of(kernel).check()
    assert is_enough(), "most questions are about nothing"


def test_an_aborted_epoch_leaves_the_trees_alone() -> None:
    db = tidelog.Database(".decl p(x: number, y: symbol) .decl q(x: number) q(8 / x) :- p(x, _).")
    with db.transaction() as tx:
        tx.insert("p", [(i, str(i)) for i in range(1, 200)])
    view = db.view("p")

    def answers() -> list[Any]:
        return [
            view.aggregate("sum", "x", x=slice(5, 150)),
            view.aggregate("count"),
            view.aggregate("max", "y"),
            view.aggregate("min", "x", y=slice("3", "4")),
        ]

    before = answers()
    assert before == [sum(range(5, 150)), 199, "99", 3]
    with pytest.raises(tidelog.EvaluationError), db.transaction() as tx:
        tx.insert("p", [(0, "zzz"), (7, "35")])
        tx.delete("p", [(i, str(i)) for i in range(3, 100)])
    assert answers() == before
    with db.transaction() as tx:
        tx.insert("p", [(2**40, "zzz")])  # the domain widens
        tx.delete("p", [(i, str(i)) for i in range(3, 100)])
    assert answers() == [sum(range(100, 150)), 103, "zzz", None]


def test_sums_are_exact_beyond_their_type() -> None:
    db = tidelog.Database(".decl p(i: number, n: number, u: unsigned)")
    with db.transaction() as tx:
        tx.insert("p", [(i, 2**63 - 1 - i, 2**64 - 1 - i) for i in range(100)])
    view = db.view("p")
    assert view.aggregate("sum", "n") == sum(2**63 - 1 - i for i in range(100))
    assert view.aggregate("sum", "u", i=slice(3, None)) == sum(2**64 - 1 - i for i in range(3, 100))
    assert view.aggregate("mean", "u", i=slice(None, 2)) == float(2**64)


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_nothing_to_aggregate(engine: str) -> None:
    db = tidelog.Database(".decl p(x: number, s: symbol, f: float) .decl ok()", engine=engine)
    view = db.view("p")
    assert [view.aggregate(op, "x") for op in ("min", "max", "mean", "sum")] == [None] * 3 + [0]
    assert [view.aggregate(op, "f") for op in ("min", "mean", "sum")] == [None, None, 0.0]
    assert view.aggregate("max", "s", s="never seen") is None
    assert view.aggregate("count", s="never seen", x=slice(1, 5)) == 0
    assert db.view("ok").aggregate("count") == 0
    with db.transaction() as tx:
        tx.insert("ok", [()])
    assert db.view("ok").aggregate("count") == 1


@pytest.mark.parametrize(
    ("arguments", "where", "message"),
    [
        (("maximum", "x"), {}, "there is no aggregate `maximum` here"),
        (("max",), {}, "`max` needs a column"),
        (("count", "x"), {}, "`count` counts rows, and takes no column"),
        (("sum", "s"), {}, "there is no sum of `s`, which is a symbol"),
        (("max", "xx"), {}, "has no column `xx`; did you mean `x`"),
        (("max", "x"), {"y": 1}, "has no column `y`"),
        (("max", "x"), {"x": "one"}, "not a number"),
        (("max", "x"), {"x": slice(1, "two")}, "not a number"),
        (("max", "x"), {"x": slice(1, 9, 2)}, "the range of `x` has a step"),
    ],
)
def test_mistakes(arguments: tuple[str, ...], where: dict[str, Any], message: str) -> None:
    db = tidelog.Database(".decl p(x: number, s: symbol)", engine="reference")
    with pytest.raises(tidelog.UsageError, match=message):
        db.view("p").aggregate(*arguments, **where)


def test_aggregates_from_python_that_cannot_be_asked_here() -> None:
    view = tidelog.Database(PROGRAM, facts={}).view("v")
    with pytest.raises(tidelog.UsageError, match="`path` takes number, and `d` is a date"):
        view.aggregate("path", "d")
    with pytest.raises(tidelog.UsageError, match="did you mean `path`"):
        view.aggregate("paths", "n")
    tidelog.aggregate(
        "spread", tidelog.SetFunction(lambda s: max(s) - min(s)), takes="number", gives="number"
    )
    try:
        with pytest.raises(tidelog.UsageError, match="a SetFunction works in rules only"):
            view.aggregate("spread", "n")
    finally:
        tidelog.forget_aggregate("spread")
