"""Reads: both engines give the same rows, in the order of values; the kernel decodes only these.

The model is a sorted list of rows.
"""

import datetime as dt
from decimal import Decimal
from random import Random
from typing import Any

import pytest

import tidelog
from tests.seeds import seeded
from tidelog.database.database import kernel_of
from tidelog.store.codec import Codec
from tidelog.values.order import sort_key
from tidelog.values.scalars import canonical_float

Row = tuple[Any, ...]
ENGINES = ["reference", "kernel"]
NAN = canonical_float(float("nan"))

VALUES: dict[str, list[Any]] = {
    "number": [-(2**63), -7, -1, 0, 1, 2, 300, 2**63 - 1],
    "unsigned": [0, 1, 5, 2**63, 2**64 - 1],
    "float": [-1e300, -0.5, 0.0, 0.5, 1e-300, float("inf"), float("-inf"), NAN],
    "symbol": ["b", "a", "", "ä", "B", "zebra", "\U0001f600", "aa"],
    "bool": [True, False],
    "date": [dt.date(2024, 2, 29), dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(2024, 1, 1), dt.datetime(1900, 1, 1, 0, 0, 0, 1)],
    "decimal(6,2)": [Decimal("-1.50"), Decimal("0.00"), Decimal("12.25")],
    "Pair": [None, (1, "b"), (1, "a"), (-2, "z")],
    "List": [None, (3, None), (1, (2, None)), (1, None)],
    "set(symbol)": [frozenset(), frozenset("ab"), frozenset("a"), frozenset("b")],
    "set(float)": [frozenset(), frozenset([NAN, -0.5]), frozenset([0.5, float("-inf")])],
    "set(unsigned)": [frozenset([2**64 - 1, 0]), frozenset([5]), frozenset()],
    "set(set(number))": [frozenset(), frozenset([frozenset([2, 1]), frozenset()])],
}
TYPES = ".type Pair = [n: number, s: symbol]\n.type List = [head: number, tail: List]\n"


def declaration(types: list[str]) -> str:
    columns = ", ".join(f"c{i}: {type_}" for i, type_ in enumerate(types))
    return f"{TYPES}.decl r({columns})"


def database(types: list[str], rows: list[Row], engine: str) -> tuple[tidelog.Database, set[Row]]:
    """Return a database whose rows lie in several runs, dead ones among them, and its rows."""
    half = len(rows) // 2
    db = tidelog.Database(declaration(types), facts={"r": rows[:half]}, engine=engine)
    held = set(rows[:half])
    for row in rows[half:]:
        inserted, deleted = {row}, set(rows[:2]) - {row}
        with db.transaction() as tx:
            tx.insert("r", inserted)
            tx.delete("r", deleted)
        held = (held - deleted) | inserted
    return db, held


class Model:
    """What a view must answer, from a sorted list."""

    def __init__(self, db: tidelog.Database, rows: set[Row]) -> None:
        columns = db.relation("r").columns
        self._keys = [sort_key(column.type, db.program.records) for column in columns]
        self.rows = sorted(rows, key=self.key)

    def key(self, row: Row) -> list[Any]:
        return [key(value) for key, value in zip(self._keys, row, strict=False)]

    def range(self, low: Row, high: Row) -> list[Row]:
        return [row for row in self.rows if self.key(low) <= self.key(row) < self.key(high)]

    def where(self, values: dict[int, Any]) -> list[Row]:
        wanted = [self._keys[c](value) for c, value in values.items()]
        return [r for r in self.rows if [self._keys[c](r[c]) for c in values] == wanted]


def random_row(random: Random, types: list[str]) -> Row:
    return tuple(random.choice(VALUES[type_]) for type_ in types)


@pytest.mark.parametrize("engine", ENGINES)
def test_random_reads(engine: str) -> None:
    for number in range(30):
        random = seeded("reads", number)
        types = random.choices(list(VALUES), k=random.randint(1, 4))
        rows = [random_row(random, types) for _ in range(random.randint(0, 25))]
        db, held = database(types, rows, engine)
        model = Model(db, held)
        view = db.view("r")
        assert len(view) == len(model.rows)
        assert list(view) == model.rows
        assert repr(view.to_arrow().to_pydict()) == repr(arrow(types, model.rows).to_pydict())
        assert view.to_arrow().schema == arrow(types, []).schema
        for _ in range(20):
            row, other = random_row(random, types), random_row(random, types)
            start, end = row[: random.randint(0, 4)], other[: random.randint(0, 4)]
            if start and end and random.random() < 0.5:
                end = (*start[:1], *end[1:])
            assert (row in view) == bool(model.where(dict(enumerate(row))))
            assert view.prefix(*start) == model.where(dict(enumerate(start)))
            assert view.range(start, end) == model.range(start, end)
            columns = random.sample(range(len(types)), random.randint(0, len(types)))
            found = view.where(**{f"c{c}": row[c] for c in columns})
            assert found == model.where({c: row[c] for c in columns})
        if engine == "kernel":
            kernel_of(db).check()


def arrow(types: list[str], rows: list[Row]) -> Any:
    """Return rows as the reference engine gives them to Arrow."""
    from tidelog.io.tabular import to_arrow

    program = tidelog.Program.parse(declaration(types))
    return to_arrow(rows, program.relations["r"], program.records)


@pytest.mark.parametrize("engine", ENGINES)
def test_relations_without_columns(engine: str) -> None:
    db = tidelog.Database(".decl ok()", engine=engine)
    view = db.view("ok")
    assert (len(view), list(view), () in view, view.prefix(), view.where()) == (
        0,
        [],
        False,
        [],
        [],
    )
    with db.transaction() as tx:
        tx.insert("ok", [()])
    assert (len(view), list(view), () in view, view.prefix()) == (1, [()], True, [()])
    assert view.range((), ()) == []
    assert view.to_arrow().num_columns == 0


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_row_is_not_in_a_view(engine: str) -> None:
    db = tidelog.Database('.decl r(x: number, y: symbol) r(1, "a").', engine=engine)
    view = db.view("r")
    assert (1, "a") in view
    for wrong in [(1,), (1, "a", 2), [1, "a"], ("1", "a"), (1.0, "a"), (True, "a"), 1, None, "1a"]:
        assert wrong not in view


@pytest.mark.parametrize("engine", ENGINES)
def test_lookups_that_cannot_work_are_refused(engine: str) -> None:
    view = tidelog.Database(".decl r(x: number, town: symbol)", engine=engine).view("r")
    with pytest.raises(tidelog.UsageError, match="has 2 columns, not 3"):
        view.prefix(1, "a", 2)
    with pytest.raises(tidelog.UsageError, match="'one' is not a number"):
        view.prefix("one")
    with pytest.raises(tidelog.UsageError, match="has no column `twon`; did you mean `town`"):
        view.where(twon="a")
    with pytest.raises(tidelog.UsageError, match="1 is not a symbol"):
        view.where(town=1)


def test_lookups_add_nothing_to_the_dictionaries() -> None:
    types = ["symbol", "Pair", "set(symbol)"]
    row = ("a", (1, "b"), frozenset("c"))
    db = tidelog.Database(declaration(types), facts={"r": [row]}, engine="kernel")
    codec = kernel_of(db).catalog.codec
    before = sizes(codec)
    view = db.view("r")
    for other in [("new", *row[1:]), (row[0], (1, "new"), row[2]), (*row[:2], frozenset(["new"]))]:
        assert other not in view
        assert view.prefix(*other) == []
        assert view.where(c1=other[1], c2=other[2], c0=other[0]) == []
        view.range(other, ("zzz",))
    assert row in view
    assert sizes(codec) == before


def sizes(codec: Codec) -> list[int]:
    return [len(dictionary) for _, dictionary in codec.dictionaries()]


def test_lookups_decode_only_what_they_return(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(i, i % 10) for i in range(20_000)]
    db = tidelog.Database(".decl r(x: number, y: number)", facts={"r": rows}, engine="kernel")
    decoded = []
    plain = Codec.decode_rows

    def counting(self: Codec, columns: Any, types: Any) -> list[Row]:
        decoded.append(columns.shape[1])
        return plain(self, columns, types)

    monkeypatch.setattr(Codec, "decode_rows", counting)
    view = db.view("r")
    assert len(view) == 20_000
    assert (77, 7) in view
    assert view.prefix(77) == [(77, 7)]
    assert view.range((5,), (8,)) == [(5, 5), (6, 6), (7, 7)]
    assert len(view.where(y=3)) == 2000
    assert view.to_arrow().num_rows == 20_000
    assert sum(decoded) == 1 + 3 + 2000
    next(iter(view))
    assert sum(decoded) < 15_000


def test_where_uses_the_orders_that_exist() -> None:
    db = tidelog.Database(
        ".decl e(x: number, y: number) .decl p(x: number, y: number) p(x, z) :- e(x, y), e(y, z).",
        facts={"e": [(1, 2), (2, 3), (3, 4)]},
        engine="kernel",
    )
    stored = kernel_of(db).catalog.relations["e"]
    assert db.view("e").where(y=3) == [(2, 3)]
    assert list(stored.indexes) == [(0, 1), (1, 0)]
    db.view("e").where(x=1)
    db.view("e").where(x=1, y=2)
    db.view("e").where()
    assert list(stored.indexes) == [(0, 1), (1, 0)]
    with db.transaction() as tx:
        tx.insert("e", [(9, 3)])
    assert db.view("e").where(y=3) == [(2, 3), (9, 3)]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_iteration_goes_on_while_the_database_changes(engine: str) -> None:
    rows = [(i, str(i)) for i in range(10_000)]
    db = tidelog.Database(".decl r(x: number, y: symbol)", facts={"r": rows}, engine=engine)
    seen = iter(db.view("r"))
    assert next(seen) == (0, "0")
    with db.transaction() as tx:
        tx.insert("r", [(-(2**40), "wide: all rows are written in another layout")])
        tx.delete("r", rows[:5000])
    assert list(seen) == rows[1:]
    assert len(db.view("r")) == 5001
