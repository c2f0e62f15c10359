"""Aggregates over inequality joins that have far more pairs than rows: as-of joins, counts, sums.

There are 100 keys, so that a key has the more rows the larger the relations are, and its pairs grow
with their square: a million rows have more than a thousand million pairs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tidelog.bench.model import Figure, Request
from tidelog.bench.ours import Changes, Fact, bootstrap, change
from tidelog.bench.suites.theta_shapes import ANY, ROUNDS, a_batch, one_row, sizes

_KEYS = 100
_VALUES = 1_000_000_000
_GIVEN = ".decl r(k: number, x: number)\n.decl s(k: number, y: number)\n"

RANGES = {
    "as-of": ".decl v(k: number, x: number, y: number)\n"
    "v(k, x, y) :- r(k, x), y = max z : { s(k, z), z <= x }.",
    "count and sum of pairs": ".decl v(k: number, n: number, t: number)\n"
    "v(k, n, t) :- r(k, _), n = count : { r(k, x), s(k, y), x < y },"
    " t = sum y : { r(k, x), s(k, y), x < y }.",
}


def measure_ranged(name: str, request: Request) -> Iterator[Figure]:
    """Measure a bootstrap, one-row changes and batches, on a smaller and a larger database."""
    for total in sizes(request):
        rng = random.Random(51)
        facts = {relation: _rows(total // 2, rng) for relation in "rs"}
        database, seconds = bootstrap(_GIVEN + RANGES[name], facts)
        yield Figure(f"bootstrap, {total:,} rows", seconds, total)
        changes = Changes()
        for _ in range(ROUNDS if request.is_full else 1):
            changes.next_round()
            new: list[Fact] = list(zip("rs" * 150, _rows(300, rng), strict=True))
            for fact in new if request.is_full else new[:20]:
                changes.add(database, change(database, inserted=[fact]))
            for fact in new if request.is_full else new[:20]:
                changes.add(database, change(database, deleted=[fact]))
        yield from changes.figures(one_row(total, ANY))
        count = 10_000 if request.is_full else 200
        times = []
        for _ in range(ROUNDS):
            batch: list[Fact] = list(zip("rs" * (count // 2), _rows(count, rng), strict=True))
            times.append(change(database, inserted=batch))
            times.append(change(database, deleted=batch))
        note = f"{1e6 * min(times) / count:.2f} µs a row, the fastest of {len(times)}"
        yield Figure(a_batch(total), min(times), count, note=note)
        state = sum(database.memory.values()) / total
        yield Figure(f"state, {total:,} rows", note=f"{state:,.0f} B for each given row")


def _rows(count: int, rng: random.Random) -> list[tuple[int, int]]:
    return [(rng.randrange(_KEYS), rng.randrange(_VALUES)) for _ in range(count)]
