"""The suite of inequality joins at its smallest: all engines find the same."""

import pytest

from tidelog.bench.model import Figure, Request, Scale, SuiteFigures
from tidelog.bench.suites import SUITES, theta_feeds, theta_shapes

SMALL = Request(Scale.SMALL, None)
SUITE = SUITES["theta"]


@pytest.mark.parametrize("shape", theta_shapes.SHAPES, ids=lambda shape: shape.name)
def test_shapes_are_measured(shape: theta_shapes.JoinOf) -> None:
    figures = {f.what: f for f in SUITE.case(f"tidelog on {shape.name}").measure(SMALL)}
    strategy = "counting" if "not free-connex" in shape.name else "theta-tree"
    for total in theta_shapes.sizes(SMALL):
        assert figures[f"bootstrap, {total:,} rows"].note == f"maintained by {strategy}"
        for stream in theta_shapes.STREAMS:
            assert figures[f"{theta_shapes.one_row(total, stream)}, median"].seconds
        assert figures[theta_shapes.a_batch(total)].rows
    read = [figures[what] for what in (theta_shapes.IN_ARROW, theta_shapes.COPY, "len")]
    assert len({figure.rows for figure in read}) == 1 and read[0].rows


def test_a_huge_result_is_counted() -> None:
    _, found, first = SUITE.case("tidelog on 400 million results").measure(SMALL)
    assert found.rows and "WRONG" not in found.note
    assert first.seconds


@pytest.mark.parametrize("name", theta_feeds.FEEDS)
def test_feeds_give_what_esper_gives(name: str) -> None:
    ours = list(SUITE.case(f"tidelog on feed of {name}").measure(SMALL))
    peer = list(SUITE.case(f"esper on feed of {name}").measure(SMALL))
    (results,) = {figure.rows for figure in (*ours, *peer)}
    assert results
    assert {figure.against for figure in peer} <= {figure.what for figure in ours}


def test_duckdb_finds_the_same_fraud() -> None:
    ours = next(SUITE.case("tidelog on feed of fraud").measure(SMALL))
    (peer,) = SUITE.case("duckdb on feed of fraud").measure(SMALL)
    assert peer.rows == ours.rows and peer.what == ours.what


def test_targets_name_what_is_measured() -> None:
    """Every figure that a target needs has a name that the cases give to one."""

    class Everything(SuiteFigures):
        def figure(self, what: str, data_set: str = "", engine: str = "tidelog") -> Figure:
            assert (engine, data_set) in cases
            asked.add(what)
            return Figure(what, 1.0, 1)

    cases = {(case.engine, case.data_set) for case in SUITE.cases}
    asked: set[str] = set()
    for target in SUITE.targets:
        target.value(Everything(()))
    full = {theta_shapes.IN_ARROW, theta_shapes.COPY, theta_shapes.FIRST}
    full |= {theta_feeds.what(size) for size in (theta_feeds.ONE, theta_feeds.MANY)}
    full.add(theta_shapes.a_batch(1_000_000))
    full |= {
        f"{theta_shapes.one_row(total, stream)}, median"
        for total in theta_shapes.sizes(Request(Scale.FULL, None))
        for stream in theta_shapes.STREAMS
    }
    assert asked == full
