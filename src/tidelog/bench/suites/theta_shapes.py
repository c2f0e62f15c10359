"""Shapes of inequality joins: with two and three atoms, with a key and without, with projections.

The shapes are those of "Conjunctive Queries with Theta Joins Under Updates", section 7. A join
without a key has a result that nobody can store at a million rows. So there the changed rows are
at the upper end of the values, where a row has few partners: what is measured is the cost of the
update, not that of enumerating millions of results.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tidelog.bench.model import Figure, Request
from tidelog.bench.ours import Changes, Fact, bootstrap, change

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.database.database import Database
    from tidelog.values.types import Row

IN_ARROW, FIRST = "enumerate into Arrow", "the first row"
COPY, STORED = "copy the Arrow table", "read it from stored rows"
ANY, IN_ORDER = "random", "in order of time"
STREAMS = (ANY, IN_ORDER)
ROUNDS = 3
_PER_KEY = 10  # rows of a relation with one key
_SPREAD = 10  # values for each row of a relation


@dataclass(frozen=True)
class JoinOf:
    """A rule over relations r, s and perhaps t, each of which has a key or number, and a value."""

    name: str
    rule: str
    columns: str
    """The columns of the view."""
    relations: str = "rs"
    has_key: bool = True
    """Whether an equality bounds the results of a row."""
    enumerated: int = 0
    """Without a key: the rows of each relation of the result that is enumerated."""

    @property
    def program(self) -> str:
        """The program: relations, view and rule."""
        given = "".join(f".decl {name}(k: number, x: number)\n" for name in self.relations)
        columns = ", ".join(f"{name}: number" for name in self.columns)
        return f"{given}.decl v({columns})\n{self.rule}\n"

    def rows_of(self, total: int) -> int:
        """Return the rows of each relation."""
        return total // len(self.relations)


SHAPES = (
    JoinOf(
        "x < y", "v(i, x, j, y) :- r(i, x), s(j, y), x < y.", "ixjy",
        has_key=False, enumerated=5_000,
    ),
    JoinOf(
        "x < y < z", "v(i, x, j, y, k, z) :- r(i, x), s(j, y), t(k, z), x < y, y < z.", "ixjykz",
        "rst", has_key=False, enumerated=300,
    ),
    JoinOf("x < y, key", "v(k, x, y) :- r(k, x), s(k, y), x < y.", "kxy"),
    JoinOf("x < y <= x + 50, key", "v(k, x, y) :- r(k, x), s(k, y), x < y, y <= x + 50.", "kxy"),
    JoinOf(
        "x < y < z, key", "v(k, x, y, z) :- r(k, x), s(k, y), t(k, z), x < y, y < z.", "kxyz",
        "rst",
    ),
    JoinOf("projection, free-connex", "v(k, x) :- r(k, x), s(k, y), x < y.", "kx"),
    JoinOf(
        "projection of three, free-connex",
        "v(k, x, y) :- r(k, x), s(k, y), t(k, z), x < y, y < z.", "kxy", "rst",
    ),
    JoinOf(
        "projection, not free-connex",
        "v(k, x, z) :- r(k, x), s(k, y), t(k, z), x < y, y < z.", "kxz", "rst",
    ),
)  # fmt: skip


def one_row(total: int, stream: str) -> str:
    """Return the name of the figure of one-row updates, without `median`."""
    return f"one row of {total:,}, {stream}"


def a_batch(total: int) -> str:
    """Return the name of the figure of a batch."""
    return f"a batch, {total:,} rows"


def sizes(request: Request) -> tuple[int, int]:
    """Return the numbers of rows of the smaller and the larger database."""
    return (10_000, 1_000_000) if request.is_full else (1_000, 4_000)


def measure_shape(shape: JoinOf, request: Request) -> Iterator[Figure]:
    """Measure updates of two databases, then the enumeration of a result."""
    database = None
    for total in sizes(request):
        rng = random.Random(31)
        facts = given(shape, shape.rows_of(total), rng)
        database, seconds = bootstrap(shape.program, facts)
        note = f"maintained by {strategy_of(database)}"
        yield Figure(f"bootstrap, {total:,} rows", seconds, total, note=note)
        for stream in STREAMS:
            yield from _one_by_one(shape, database, total, stream, request, rng)
        yield _batch(shape, database, total, 10_000 if request.is_full else 200, rng)
        state = sum(database.memory.values()) / total
        yield Figure(f"state, {total:,} rows", note=f"{state:,.0f} B for each given row")
    assert database is not None
    if shape.enumerated:
        per_relation = shape.enumerated if request.is_full else 40
        facts = given(shape, per_relation, random.Random(32))
        database, _ = bootstrap(shape.program, facts)
    yield from enumerate_result(database)


def given(shape: JoinOf, size: int, rng: random.Random) -> dict[str, Sequence[Row]]:
    """Return `size` rows for each relation, with random values."""
    return {name: [_row(shape, i, size, rng) for i in range(size)] for name in shape.relations}


def strategy_of(database: Database) -> str:
    """Return the strategy that maintains the view."""
    (found,) = (layer for layer in database.last_epoch.layers if "v" in layer.relations)
    return found.strategy


def _row(shape: JoinOf, i: int, size: int, rng: random.Random) -> Row:
    key = rng.randrange(max(1, size // _PER_KEY)) if shape.has_key else i
    # The values of a key are as dense in a large relation as in a small one.
    values = _SPREAD * (_PER_KEY if shape.has_key else size)
    return key, rng.randrange(values)


def _new_rows(shape: JoinOf, total: int, count: int, stream: str, rng: random.Random) -> list[Fact]:
    """Return rows to insert, with numbers or values that are not there yet."""
    size = shape.rows_of(total)
    highest = _SPREAD * (_PER_KEY if shape.has_key else size)
    rows: list[Fact] = []
    for i in range(count):
        if shape.has_key:
            value = highest + i if stream == IN_ORDER else rng.randrange(highest)
            row = rng.randrange(max(1, size // _PER_KEY)), value
            name = shape.relations[i % len(shape.relations)]
        else:
            value = highest + i if stream == IN_ORDER else highest - 1 - rng.randrange(50)
            row = size + i, value
            name = "r"
        rows.append((name, row))
    return rows


def _one_by_one(
    shape: JoinOf,
    database: Database,
    total: int,
    stream: str,
    request: Request,
    rng: random.Random,
) -> Iterator[Figure]:
    """Insert rows one by one, then delete them one by one."""
    changes = Changes()
    for _ in range(ROUNDS if request.is_full else 1):
        changes.next_round()
        new = _absent(
            database, _new_rows(shape, total, 300 if request.is_full else 20, stream, rng)
        )
        for fact in new:
            changes.add(database, change(database, inserted=[fact]))
        for fact in new:
            changes.add(database, change(database, deleted=[fact]))
    yield from changes.figures(one_row(total, stream))


def _absent(database: Database, facts: Sequence[Fact]) -> list[Fact]:
    return [(name, row) for name, row in dict.fromkeys(facts) if row not in database.view(name)]


def _batch(shape: JoinOf, database: Database, total: int, count: int, rng: random.Random) -> Figure:
    """Insert many rows in one transaction, and delete them in another."""
    times = []
    new: list[Fact] = []
    for _ in range(ROUNDS):
        new = _absent(database, _new_rows(shape, total, count, ANY, rng))
        times.append(change(database, inserted=new))
        times.append(change(database, deleted=new))
    best = min(times)
    note = f"{1e6 * best / len(new):.2f} µs a row, the fastest of {len(times)}"
    return Figure(a_batch(total), best, len(new), note=note)


def enumerate_result(database: Database) -> Iterator[Figure]:
    """Measure reading the whole result, and copies of it to compare with."""
    yield first_row(database)
    start = time.perf_counter()
    count = len(database.view("v"))
    yield Figure("len", time.perf_counter() - start, count)
    seconds, table = min(
        (_timed_arrow(database) for _ in range(ROUNDS)), key=lambda found: found[0]
    )
    assert table.num_rows == count
    yield _per_row(IN_ARROW, seconds, count)
    copies = [_timed_copy(table) for _ in range(ROUNDS)]
    yield _per_row(COPY, min(copies), count, "the same columns, in memory")
    yield _per_row(STORED, _timed_stored(table), count, "a relation that has these rows")


def first_row(database: Database) -> Figure:
    """Measure how long the first row takes."""
    start = time.perf_counter()
    next(iter(database.view("v")))
    return Figure(FIRST, time.perf_counter() - start)


def _timed_arrow(database: Database) -> tuple[float, pa.Table]:
    start = time.perf_counter()
    table = database.view("v").to_arrow()
    return time.perf_counter() - start, table


def _timed_copy(table: pa.Table) -> float:
    arrays = [chunk.to_numpy() for column in table.columns for chunk in column.chunks]
    start = time.perf_counter()
    copied = [np.array(array) for array in arrays]
    seconds = time.perf_counter() - start
    assert sum(map(len, copied)) == table.num_rows * table.num_columns
    return seconds


def _timed_stored(table: pa.Table) -> float:
    """Return the time to read the same rows from a relation that stores them."""
    from tidelog.database.database import Database

    columns = ", ".join(f"{name}: number" for name in table.column_names)
    stored = Database(f".decl v({columns})", facts={"v": table}, engine="kernel")
    return min(_timed_arrow(stored)[0] for _ in range(ROUNDS))


def _per_row(what: str, seconds: float, rows: int, about: str = "") -> Figure:
    note = f"{1e9 * seconds / max(1, rows):.1f} ns a row"
    return Figure(what, seconds, rows, note=f"{note}; {about}" if about else note)
