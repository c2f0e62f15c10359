"""The suite of joins of several relations, at its smallest."""

import pytest

from tidelog.bench.model import Request, Scale
from tidelog.bench.suites import SUITES
from tidelog.bench.suites.leapfrog import BY_CLOCK, BY_DELTA, BY_TRACE, ONE, power_law

SMALL = Request(Scale.SMALL, None)


@pytest.mark.parametrize("name", ["triangle", "small relation"])
def test_all_ways_find_the_same(name: str) -> None:
    rows = set()
    for way in (BY_CLOCK, BY_DELTA, BY_TRACE):
        figures = list(SUITES["leapfrog"].case(f"tidelog on {name}, {way}").measure(SMALL))
        rows.add(figures[0].rows)
        assert any(f.what == f"{ONE}, median" and f.seconds for f in figures)
        assert ("iterator operations" in figures[-1].note) == (way == BY_TRACE)
    assert len(rows) == 1
    assert rows != {0}


def test_a_power_law_graph_has_hubs() -> None:
    edges = power_law(2000)
    assert len(edges) == len(set(edges)) == 2000
    degrees = [sum(node in edge for edge in edges) for node in range(20)]
    assert max(degrees) > 20
