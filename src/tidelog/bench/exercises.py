"""Small programs that together call every kernel, with every kind of array that the engine uses.

Every measurement runs them before it starts the clock, so that all kernels are loaded. A test
compares what they call with kernel/signatures.py, so that a new kernel cannot be left out.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidelog.database.database import Database, kernel_of
from tidelog.database.transaction import Transaction
from tidelog.engine.last_write_wins import last_write_wins
from tidelog.errors import EvaluationError
from tidelog.io.facts import open_facts
from tidelog.logic.program import Program
from tidelog.maintain.elastic import Elastic
from tidelog.sharding.cells import Cells
from tidelog.sharding.layout import layout_on
from tidelog.sharding.sharding import Grid
from tidelog.values.types import Row

Facts = Mapping[str, list[Row]]


@dataclass(frozen=True)
class Exercise:
    """A program, facts to start with, and epochs of (inserted, deleted) rows."""

    name: str
    program: str
    facts: Facts
    epochs: tuple[tuple[Facts, Facts], ...] = ()
    failing: tuple[Facts, Facts] | None = None
    """An epoch that a rule cannot compute with, so that it is undone."""
    lookups: Mapping[str, Row] = field(default_factory=dict)
    """For a view the beginning of rows to look up."""
    aggregated: Mapping[str, str] = field(default_factory=dict)
    """For a relation the column of which trees are kept, from the first evaluation on."""


_CHAIN = [(i, i + 1) for i in range(60)]

EXERCISES = (
    # Rows in one word: counting and elastic recursion, both ways, with negation.
    Exercise(
        "recursion",
        """
        .decl edge(x: number, y: number)
        .decl path(x: number, y: number)
        path(x, y) :- edge(x, y).
        path(x, z) :- path(x, y), edge(y, z).
        .decl two(x: number, z: number)
        two(x, z) :- edge(x, y), edge(y, z), !edge(x, z).
        .decl farthest(x: number, y: number, n: number)
        farthest(x, y, n) :-
            edge(x, _), y = max z : { path(x, z) }, n = count : { path(x, _) }.
        """,
        {"edge": [*_CHAIN, (60, 0)]},
        (
            ({}, {"edge": [(30, 31), (7, 8)]}),
            ({"edge": [(30, 31), (5, 40)]}, {}),
            ({"edge": [(i, 1000 * i) for i in range(1, 700)]}, {"edge": _CHAIN[:20]}),
        ),
        lookups={"path": (1,)},
    ),
    # The trace of a cyclic join.
    Exercise(
        "trace",
        """
        .decl edge(x: number, y: number)
        .decl triangle(x: number, y: number, z: number)
        triangle(x, y, z) :- edge(x, y), edge(y, z), edge(x, z).
        .view triangle(strategy="leapfrog")
        """,
        {"edge": [*_CHAIN, (0, 2)]},
        (({"edge": [(5, 7)]}, {"edge": [(1, 2)]}),),
    ),
    # Rows of several words: values that leave no room to pack them.
    Exercise(
        "wide rows",
        """
        .decl edge(x: number, y: number, w: unsigned)
        .decl path(x: number, y: number, w: unsigned)
        path(x, y, w) :- edge(x, y, w).
        path(x, z, w) :- path(x, y, w), edge(y, z, _).
        .decl sides(w: unsigned, y: number, x: number)
        sides(w, y, x) :- path(x, y, w), x != y.
        """,
        {"edge": [(-(2**62) + i, -(2**62) + i + 1, 2**63 + i) for i in range(30)]},
        (
            ({}, {"edge": [(-(2**62) + 9, -(2**62) + 10, 2**63 + 9)]}),
            ({"edge": [(2**62, -(2**62), 1), (-(2**62) + 9, -(2**62) + 10, 2**63 + 9)]}, {}),
        ),
        lookups={"sides": (2**63 + 1,)},
    ),
    # So many small epochs that their runs are merged. With a set none is run in one call.
    Exercise(
        "small epochs",
        """
        .decl left(x: number, y: number)
        .decl right(y: number, x: number)
        right(y, x) :- left(x, y).
        .decl all(x: set(number))
        all(x) :- x = setof y : { left(y, _) }.
        """,
        {"left": [(1, 1)]},
        tuple(({"left": [(i, 2 * i)]}, {}) for i in range(2, 14)),
    ),
    # Rows that expire.
    Exercise(
        "old rows",
        ".decl event(x: number, at: number) .retain event(at, 5)",
        {"event": [(1, 1), (2, 2)]},
        (({"event": [(3, 9)]}, {}),),
    ),
    # A recursion that is not linear: its levels are repaired one by one.
    Exercise(
        "two recursive atoms",
        """
        .decl edge(x: number, y: number)
        .decl path(x: number, y: number)
        path(x, y) :- edge(x, y).
        path(x, z) :- path(x, y), path(y, z).
        """,
        {"edge": _CHAIN[:20]},
        (({}, {"edge": [(7, 8)]}), ({"edge": [(7, 8), (3, 15)]}, {})),
    ),
    # Runs that are large enough for a directory.
    Exercise(
        "large runs",
        """
        .decl left(x: number, y: number)
        .decl right(y: number, z: number)
        .decl both(x: number, z: number)
        both(x, z) :- left(x, y), right(y, z).
        .decl matched(x: number, y: number)
        matched(x, y) :- left(x, y), right(y, _).
        .decl alone(x: number, y: number)
        alone(x, y) :- left(x, y), !matched(x, y).
        """,
        {
            "left": [(i, i % 997) for i in range(6000)],
            "right": [(i, 3 * i) for i in range(6000)],
        },
        (({"left": [(1, 2)]}, {"right": [(5, 15)]}),),
        aggregated={"left": "y", "right": "z"},
    ),
    # Counts, sums and means of more groups than are added up at a time, and what overflows.
    Exercise(
        "groups",
        """
        .decl r(g: number, h: symbol, v: float, n: number)
        .decl asked(g: number)
        .decl by_both(g: number, h: symbol, v: float)
        by_both(g, h, v) :- r(g, h, _, _), v = mean x : { r(g, h, x, _) }.
        .decl of_all(v: float, n: number)
        of_all(v, n) :- v = total x : { r(_, _, x, _) }, n = count x : { r(_, x, _, _) }.
        .decl by_number(g: number, n: number)
        by_number(g, n) :- asked(g), n = sum x : { r(g, _, _, x) }.
        .decl several(h: symbol, n: number, t: float, v: float)
        several(h, n, t, v) :-
            r(_, h, _, _), n = count : { r(_, h, _, _) }, t = total x : { r(_, h, x, _) },
            v = mean x : { r(_, h, x, _) }.
        """,
        {"r": [(i, "ab"[i % 2], i / 7, i) for i in range(2600)], "asked": [(1,)]},
        (
            ({"r": [(1, "a", 1e300, 1), (2, "b", 1.0, 2**63 - 1)]}, {"r": [(0, "a", 0.0, 0)]}),
            ({"asked": [(3,)]}, {"r": [(1, "a", 1e300, 1)]}),
        ),
        ({"asked": [(2,)]}, {}),
    ),
    # Inequality joins whose rows are not stored: nested ranges, one that tests a row by itself, and
    # one with bounds on two columns.
    Exercise(
        "inequality",
        """
        .decl before(x: number)
        .decl after(y: number)
        .decl v(x: number, y: number)
        v(x, y) :- before(x), after(y), x < y.
        .decl w(x: number, y: number)
        w(x, y) :- before(x), after(y), x < y, y > 1.
        .decl pair(x: number, y: number)
        pair(x, x + 1) :- before(x).
        .decl z(x: number, y: number, u: number, v: number)
        z(x, y, u, v) :- pair(x, y), pair(u, v), x < u, v < y + 3.
        """,
        {"before": [(i,) for i in range(9)], "after": [(i,) for i in range(9)]},
        (({"before": [(11,)]}, {"after": [(3,)]}),),
        lookups={"v": (2,), "w": (2,), "z": (2,)},
    ),
    # Aggregates over the pairs of inequality joins.
    Exercise(
        "ranges",
        """
        .decl left(x: number, y: number)
        .decl right(y: number, z: number)
        .decl nearest(x: number, y: number, z: number)
        nearest(x, y, z) :- left(x, y), z = max w : { right(x, w), w < y }.
        .decl pairs(n: number, s: number)
        pairs(n, s) :-
            n = count : { left(_, y), right(_, z), y < z },
            s = sum z : { left(_, y), right(_, z), y < z }.
        """,
        {"left": [(i % 7, 3 * i) for i in range(99)], "right": [(i % 7, 2 * i) for i in range(99)]},
        (
            ({"left": [(1, 2)]}, {"right": [(5, 10)]}),
            ({"right": [(2, 5)]}, {}),
            ({"left": [(i % 7, 5 * i) for i in range(500)]}, {"left": [(1, 3)]}),
        ),
    ),
    # Values that are not numbers, groups, and what is computed inside and outside of joins.
    Exercise(
        "values",
        """
        .type Pair = [left: symbol, right: number]
        .decl sale(shop: symbol, price: float, day: date)
        .decl total(shop: symbol, price: float)
        total(s, p) :- sale(s, _, _), p = sum x : { sale(s, x, _) }.
        .decl named(name: symbol, pair: Pair)
        named(cat(s, "!"), [s, n]) :- sale(s, p, _), n = to_number(p) * 2 + 1, p > 1.0.
        .decl share(s: symbol, n: number)
        share(s, 100 / to_number(p)) :- sale(s, p, _).
        .decl left(s: symbol)
        left(s) :- named(_, [s, _]).
        """,
        {
            "sale": [
                ("a", 1.5, dt.date(2024, 1, 1)),
                ("b", 2.5, dt.date(2024, 1, 2)),
                ("a", 3.0, dt.date(2024, 1, 3)),
            ]
        },
        (
            (
                {"sale": [("c", -4.0, dt.date(2024, 2, 1))]},
                {"sale": [("a", 1.5, dt.date(2024, 1, 1))]},
            ),
            (
                {"sale": [("a", 1.5, dt.date(2024, 1, 1))]},
                {"sale": [("c", -4.0, dt.date(2024, 2, 1))]},
            ),
        ),
        ({"sale": [("d", 0.5, dt.date(2024, 2, 2))]}, {"sale": [("b", 2.5, dt.date(2024, 1, 2))]}),
        {"total": ("a",)},
    ),
    # Sets that are built, changed, looked up and shown; more of them than there is room at first.
    Exercise(
        "sets",
        """
        .decl bought(name: symbol, item: number)
        .decl basket(items: set(number), name: symbol)
        basket(s, n) :- bought(n, _), s = setof i : { bought(n, i) }.
        """,
        {"bought": [("a", i) for i in range(60)]},
        (({"bought": [("a", 60), ("b", 1)]}, {"bought": [("a", 7)]}),),
        lookups={"basket": (frozenset([1]),)},
    ),
)


def exercise_kernels() -> Iterator[str]:
    """Run the exercises; yield the name of each that is done."""
    for exercise in EXERCISES:
        for budget in (None, 0.0):  # updates to their end, then bootstraps instead
            _run(exercise, budget)
        yield exercise.name
    _open_again()
    yield "files"
    _load_columns()
    _route()
    yield "shards"


def warm_up() -> None:
    """Compile or load every kernel."""
    for _ in exercise_kernels():
        pass


def _run(exercise: Exercise, budget: float | None) -> None:
    database = Database(exercise.program, facts=exercise.facts, engine="kernel")
    for strategy in kernel_of(database).strategies:
        if isinstance(strategy, Elastic):
            strategy.budget = budget  # what is called must not depend on the clock
    for relation, column in exercise.aggregated.items():
        database.view(relation).aggregate("sum", column)
    for epoch in exercise.epochs:
        changes = _apply(database, *epoch).changes
        for relation in database.program.relations:
            list(changes[relation].inserted)
    if exercise.failing is not None:
        with suppress(EvaluationError):
            _apply(database, *exercise.failing)
    for relation, values in exercise.lookups.items():
        view = database.view(relation)
        view.prefix(*values)
        view.range(values, values)
        list(view)
        len(view)
        view.to_arrow()


def _open_again() -> None:
    """Change a database that comes from files, so that its groups and symbols are read."""
    program, facts = ".decl p(s: symbol, x: number) .decl n(x: number, c: number)", [("a", 1)]
    program += "n(x, c) :- p(_, x), c = count : { p(_, x) }."
    with tempfile.TemporaryDirectory(prefix="tidelog-") as folder:
        Database(program, facts={"p": [(f"{i}", i) for i in range(20)]}, path=folder).close()
        with Database(program, path=folder) as database:
            _apply(database, {"p": facts}, {})
            _apply(database, {"p": [("b", 2)]}, {})  # a short epoch that is observed


def _load_columns() -> None:
    """Load symbols by columns, and from a file: more than a new hash table has room for."""
    texts = [f"symbol {i}" for i in range(2000)]
    program = ".decl p(s: symbol)"
    Database(program, facts={"p": pa.table({"s": pa.array(texts)})})
    with tempfile.NamedTemporaryFile(prefix="tidelog-") as file:
        file.write("\n".join(5 * texts).encode())
        file.flush()
        of = Program.parse(program).relation("p")
        Database(program, facts={"p": open_facts(Path(file.name), of, {}, {})})


def _route() -> None:
    """Tell the shards of rows, and what was said of them last."""
    program = Program.parse(".decl p(x: number, y: number)")
    (router,) = Cells(program, layout_on(program, Grid((2,)))).routers
    rows = pa.table({"x": np.arange(9), "y": np.arange(9)})
    router.needed("p", rows)(0)
    last_write_wins([(np.zeros((2, 2), np.int64), np.array([True, False]))])


def _apply(database: Database, inserted: Facts, deleted: Facts) -> Transaction:
    with database.transaction() as transaction:
        for relation, rows in inserted.items():
            transaction.insert(relation, rows)
        for relation, rows in deleted.items():
            transaction.delete(relation, rows)
    return transaction
