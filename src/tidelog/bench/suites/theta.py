"""Inequality joins: what an update costs, what reading costs, and how many results a feed gives.

theta_shapes.py   updates and enumeration, for each shape of join
theta_ranges.py   aggregates over more pairs than anybody can store
theta_feeds.py    change feeds, beside Esper and duckdb
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from tidelog.bench import esper
from tidelog.bench.model import (
    OURS,
    BenchCase,
    Figure,
    NotMeasuredError,
    Request,
    Suite,
    SuiteFigures,
    Target,
)
from tidelog.bench.suites.theta_feeds import (
    FEEDS,
    MANY,
    ONE,
    measure_duckdb,
    measure_esper,
    measure_feed,
    what,
)
from tidelog.bench.suites.theta_ranges import RANGES, measure_ranged
from tidelog.bench.suites.theta_shapes import (
    COPY,
    FIRST,
    IN_ARROW,
    SHAPES,
    STREAMS,
    a_batch,
    first_row,
    measure_shape,
    one_row,
)

HUGE = "400 million results"
ESPER = "esper"
SMALLER, LARGER = 10_000, 1_000_000


def _huge(request: Request) -> Iterator[Figure]:
    """Measure a result that nobody stores. No kernels are loaded that it does not need."""
    from tidelog.database.database import Database

    size = 1_350 if request.is_full else 60
    rng = random.Random(41)
    values = {name: rng.sample(range(100 * size), size) for name in "rst"}
    start = time.perf_counter()
    database = Database(
        FEEDS["x < y < z"].program,
        facts={name: [(value,) for value in found] for name, found in values.items()},
        engine="kernel",
    )
    yield Figure("bootstrap", time.perf_counter() - start, 3 * size)
    start = time.perf_counter()
    count = len(database.view("v"))
    seconds = time.perf_counter() - start
    x, y, z = (np.sort(values[name]) for name in "rst")
    below, above = np.searchsorted(x, y), size - np.searchsorted(z, y, side="right")
    is_right = count == int((below * above).sum())
    note = "" if is_right else "WRONG; "
    yield Figure("len", seconds, count, note=f"{note}{1e9 * seconds / count:.2f} ns a result")
    first_row(database)  # loads the kernel that joins, which `len` does not need
    yield first_row(database)


def _feed(name: str) -> str:
    """Return the data set of a feed."""
    return f"feed of {name}"


# --- targets, over all shapes ---

Found = SuiteFigures


def _worst(value: Callable[[Found, str], float]) -> Callable[[Found], float]:
    """Return the largest value over all shapes."""
    return lambda found: max(value(found, shape.name) for shape in SHAPES)


def _one_row(found: Found, shape: str, total: int = LARGER) -> float:
    return max(found.seconds(f"{one_row(total, s)}, median", shape) for s in STREAMS)


def _growth(found: Found, shape: str) -> float:
    return _one_row(found, shape) / _one_row(found, shape, SMALLER)


def _per_row(figure: Figure) -> float:
    if figure.seconds is None or not figure.rows:
        raise NotMeasuredError
    return figure.seconds / figure.rows


def _against_copy(found: Found, shape: str) -> float:
    return found.seconds(IN_ARROW, shape) / found.seconds(COPY, shape)


def _ranged_growth(found: Found, name: str) -> float:
    small, large = (f"{one_row(total, STREAMS[0])}, median" for total in (SMALLER, LARGER))
    return found.seconds(large, name) / found.seconds(small, name)


def _first_row(found: Found) -> float:
    names = [*(shape.name for shape in SHAPES), HUGE]
    return 1e3 * max(found.seconds(FIRST, name) for name in names)


_OF_SHAPES = (
    (f"one row of {LARGER:,}, median", 60.0, " µs", lambda f, s: 1e6 * _one_row(f, s)),
    (f"one row of {LARGER:,}, against one of {SMALLER:,}", 1.5, "x", _growth),
    ("a row of a batch", 2.0, " µs", lambda f, s: 1e6 * _per_row(f.figure(a_batch(LARGER), s))),
    ("a row into Arrow", 20.0, " ns", lambda f, s: 1e9 * _per_row(f.figure(IN_ARROW, s))),
    ("into Arrow, against a copy of the table", 2.0, "x", _against_copy),
)

# --- targets of feeds ---


def _events_a_second(size: int, found: Found) -> float:
    return len(FEEDS["fraud"].events(True)) / found.seconds(what(size), _feed("fraud"))


def _against_esper(name: str, found: Found) -> float:
    return found.seconds(what(ONE), _feed(name), ESPER) / found.seconds(what(MANY), _feed(name))


_OF_FEEDS = (
    ("fraud in batches of 100", 300_000.0, " events/s", partial(_events_a_second, MANY)),
    ("fraud one by one", 15_000.0, " events/s", partial(_events_a_second, ONE)),
    (
        "x < y in batches of 100", 30.0, " M results/s",
        lambda f: 1e-6 / _per_row(f.figure(what(MANY), _feed("x < y"))),
    ),
    ("x < y < z, Esper's time against ours", 10.0, "x", partial(_against_esper, "x < y < z")),
    (
        "x < y of one key, Esper's time against ours", 3.0, "x",
        partial(_against_esper, "x < y of one key"),
    ),
)  # fmt: skip

SUITE = Suite(
    "theta",
    "inequality joins of two and three relations: updates, enumeration, change feeds",
    (
        *(BenchCase(OURS, partial(measure_shape, shape), shape.name) for shape in SHAPES),
        *(BenchCase(OURS, partial(measure_ranged, name), name) for name in RANGES),
        BenchCase(OURS, _huge, HUGE),
        *(BenchCase(OURS, partial(measure_feed, name), _feed(name)) for name in FEEDS),
        *(
            BenchCase(
                ESPER,
                partial(measure_esper, name),
                _feed(name),
                module="pyspark",  # its Ivy downloads the jars
                commands=esper.TOOLS,
            )
            for name in FEEDS
        ),
        BenchCase("duckdb", measure_duckdb, _feed("fraud"), module="duckdb"),
    ),
    (
        *(Target(name, limit, unit, _worst(value)) for name, limit, unit, value in _OF_SHAPES),
        Target(
            f"aggregates of pairs: one row of {LARGER:,}, against one of {SMALLER:,}",
            1.5,
            "x",
            lambda found: max(_ranged_growth(found, name) for name in RANGES),
        ),
        Target("the first row", 5.0, " ms", _first_row),
        Target(
            f"{HUGE}: peak memory, also after the first row",
            300.0,
            " MB",
            lambda found: found.figure(FIRST, HUGE).peak_bytes / 1e6,
        ),
        *(Target(*feed, at_least=True) for feed in _OF_FEEDS),
    ),
)
