"""Change feeds of inequality joins: events come in, and every result is taken as it arises.

The streams are not in the order of time, and no engine may assume an order.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.bench import esper
from tidelog.bench.model import Figure, Request
from tidelog.bench.ours import Fact

if TYPE_CHECKING:
    from tidelog.values.types import Row

ONE, MANY = 1, 100
"""Events of a transaction."""
RUNS = 2  # in new databases; the fastest is reported


@dataclass(frozen=True)
class Feed:
    """A view, and the events that change it."""

    name: str
    program: str
    view: str
    events: Callable[[bool], list[Fact]]
    """Returns the events, of the full scale or of the small one."""
    module: str
    """The same view in Esper's language."""
    sizes: tuple[int, ...] = (MANY,)
    """The numbers of events in a transaction to measure."""


def _shuffled(facts: list[Fact], rng: random.Random) -> list[Fact]:
    rng.shuffle(facts)
    return facts


def _values(names: str, total: int, rng: random.Random) -> list[Fact]:
    """Return facts of several relations of one column, all with different values."""
    values = rng.sample(range(10 * total), total)
    return _shuffled([(names[i % len(names)], (x,)) for i, x in enumerate(values)], rng)


def _two(full: bool) -> list[Fact]:
    return _values("rs", 10_000 if full else 400, random.Random(21))


def _three(full: bool) -> list[Fact]:
    return _values("rst", 900 if full else 90, random.Random(22))


def _keys(full: bool) -> list[Fact]:
    total, keys = (100_000, 5_000) if full else (800, 40)
    rng = random.Random(23)
    values = rng.sample(range(10 * total), total)
    return [("rs"[i % 2], (rng.randrange(keys), x)) for i, x in enumerate(values)]


def _payments(full: bool) -> list[Fact]:
    """Return payments of eleven hours, about 200 of which complete the pattern at full scale."""
    total, accounts = (100_000, 12_500) if full else (800, 50)
    rng = random.Random(24)
    return [
        ("payment", (i, rng.randrange(accounts), rng.randrange(11 * 3600), rng.randrange(500)))
        for i in range(total)
    ]


FEEDS = {
    feed.name: feed
    for feed in (
        Feed(
            "x < y",
            """
            .decl r(x: number)
            .decl s(y: number)
            .decl v(x: number, y: number)
            v(x, y) :- r(x), s(y), x < y.
            """,
            "v",
            _two,
            """
            @public @buseventtype create objectarray schema r(x long);
            @public @buseventtype create objectarray schema s(y long);
            @name('view') select r.x as x, s.y as y from r#keepall as r, s#keepall as s
            where r.x < s.y;
            """,
        ),
        Feed(
            "x < y < z",
            """
            .decl r(x: number)
            .decl s(y: number)
            .decl t(z: number)
            .decl v(x: number, y: number, z: number)
            v(x, y, z) :- r(x), s(y), t(z), x < y, y < z.
            """,
            "v",
            _three,
            """
            @public @buseventtype create objectarray schema r(x long);
            @public @buseventtype create objectarray schema s(y long);
            @public @buseventtype create objectarray schema t(z long);
            @name('view') select r.x as x, s.y as y, t.z as z
            from r#keepall as r, s#keepall as s, t#keepall as t
            where r.x < s.y and s.y < t.z;
            """,
        ),
        Feed(
            "x < y of one key",
            """
            .decl r(k: number, x: number)
            .decl s(k: number, y: number)
            .decl v(k: number, x: number, y: number)
            v(k, x, y) :- r(k, x), s(k, y), x < y.
            """,
            "v",
            _keys,
            """
            @public @buseventtype create objectarray schema r(k long, x long);
            @public @buseventtype create objectarray schema s(k long, y long);
            @name('view') select r.k as k, r.x as x, s.y as y from r#keepall as r, s#keepall as s
            where r.k = s.k and r.x < s.y;
            """,
        ),
        Feed(
            "fraud",
            """
            // Two payments under 100, then one over 400, all within an hour.
            .decl payment(id: number, account: number, at: number, amount: number)
            .decl alert(account: number, first: number, second: number, id: number)
            alert(a, i, j, k) :-
                payment(i, a, t, x), x < 100,
                payment(j, a, u, y), y < 100,
                payment(k, a, v, z), z > 400,
                t < u, u < v, v <= t + 3600.
            """,
            "alert",
            _payments,
            """
            @public @buseventtype
            create objectarray schema payment(id long, account long, moment long, amount long);
            @name('view') select a.account as account, a.id as i, b.id as j, c.id as k
            from payment(amount < 100)#keepall as a, payment(amount < 100)#keepall as b,
                payment(amount > 400)#keepall as c
            where a.account = b.account and b.account = c.account
                and a.moment < b.moment and b.moment < c.moment
                and c.moment <= a.moment + 3600;
            """,
            (MANY, ONE),
        ),
    )
}

FRAUD_SQL = """
    SELECT count(*) FROM payment a, payment b, payment c
    WHERE a.account = b.account AND b.account = c.account
        AND a.amount < 100 AND b.amount < 100 AND c.amount > 400
        AND a.moment < b.moment AND b.moment < c.moment AND c.moment <= a.moment + 3600
"""


def what(size: int) -> str:
    """Return the name of the figure of a feed."""
    return "events one by one" if size == ONE else f"events in batches of {size}"


def measure_feed(name: str, request: Request) -> Iterator[Figure]:
    """Measure our change feed, each change as an Arrow table."""
    from tidelog.bench.exercises import warm_up

    warm_up()
    feed = FEEDS[name]
    events = feed.events(request.is_full)
    for size in feed.sizes:
        batches = list(_batches(events, size))
        runs = [_run(feed, batches) for _ in range(RUNS)]
        yield _figure(what(size), len(events), *min(runs))


def _batches(events: Sequence[Fact], size: int) -> Iterator[Mapping[str, list[Row]]]:
    for start in range(0, len(events), size):
        rows: dict[str, list[Row]] = {}
        for relation, row in events[start : start + size]:
            rows.setdefault(relation, []).append(row)
        yield rows


def _run(feed: Feed, batches: Sequence[Mapping[str, list[Row]]]) -> tuple[float, int]:
    """Return the time of a feed into an empty database, and the number of results."""
    from tidelog.database.database import Database

    database = Database(feed.program, engine="kernel")
    results = 0
    start = time.perf_counter()
    for batch in batches:
        with database.transaction() as transaction:
            for relation, rows in batch.items():
                transaction.insert(relation, rows)
        change = transaction.changes.get(feed.view)
        if change is not None:
            results += change.inserted.to_arrow().num_rows
    return time.perf_counter() - start, results


def measure_esper(name: str, request: Request) -> Iterator[Figure]:
    """Measure Esper, event by event."""
    feed = FEEDS[name]
    events = feed.events(request.is_full)
    seconds, results = min(esper.feed(feed.module, events, RUNS))
    note = f"Esper {esper.VERSION}, order-independent, warm"
    yield _figure(what(ONE), len(events), seconds, results, note, against=what(MANY))


def measure_duckdb(request: Request) -> Iterator[Figure]:
    """Measure duckdb on the payments: the query again after each batch."""
    import duckdb
    import pyarrow as pa

    events = FEEDS["fraud"].events(request.is_full)
    names = ("id", "account", "moment", "amount")
    columns = zip(*(row for _, row in events), strict=True)
    table = pa.table({name: pa.array(c) for name, c in zip(names, columns, strict=True)})
    connection = duckdb.connect()
    columns_in_sql = ", ".join(f"{name} BIGINT" for name in names)
    connection.execute(f"CREATE TABLE payment({columns_in_sql})")
    results = 0
    start = time.perf_counter()
    for i in range(0, len(events), MANY):
        connection.register("batch", table.slice(i, MANY))
        connection.execute("INSERT INTO payment SELECT * FROM batch")
        ((results,),) = connection.execute(FRAUD_SQL).fetchall()
    seconds = time.perf_counter() - start
    yield _figure(what(MANY), len(events), seconds, results, "a recompute after each batch")


def _figure(
    what: str, events: int, seconds: float, results: int, about: str = "", against: str = ""
) -> Figure:
    speed = f"{events / seconds:,.0f} events/s, {results / seconds:,.0f} results/s"
    note = f"{speed}; {about}" if about else speed
    return Figure(what, seconds, results, note=note, against=against)
