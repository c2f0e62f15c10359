"""The suite of joins of several relations, at its smallest; and the bound of operations."""

from xml.etree import ElementTree

import pytest

from tests.samples import sample
from tests.seeds import seeded
from tidelog.bench.chart import chart
from tidelog.bench.model import Figure, Outcome, Request, Scale
from tidelog.bench.suites import SUITES
from tidelog.bench.suites.leapfrog import BY_CLOCK, BY_DELTA, BY_TRACE, ONE, operations
from tidelog.bench.trace_operations import BENCH_RULES, Update, power_law, random_shape, updates

SMALL = Request(Scale.SMALL, None)


@pytest.mark.parametrize("name", ["triangle", "4-cycle", "small relation", "complement"])
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


@pytest.mark.parametrize("name", BENCH_RULES)
def test_operations_are_bounded_by_edits(name: str) -> None:
    """The same ratio as the suite's target, on other changes in each run."""
    rng = seeded("operations", name)
    size = sample(8_000, 100_000)
    found: list[Update] = []
    for _ in range(20):  # until a change alters the trace
        found += updates(BENCH_RULES[name], size, sample(6, 40), rng.randrange(1 << 30))
        if any(update.edits for update in found):
            break
    assert any(update.edits for update in found)
    assert max(update.ratio for update in found) <= 8


@pytest.mark.parametrize("number", range(sample(4, 100)))
def test_operations_of_random_joins_are_bounded_by_edits(number: int) -> None:
    rng = seeded("operations", "random", number)
    shape = random_shape(rng.randrange(1 << 30))
    found = list(updates(shape, rng.choice((500, 2_000)), 8, rng.randrange(1 << 30)))
    assert max(update.ratio for update in found) <= 8, shape.rule


def test_points_are_drawn() -> None:
    suite = SUITES["leapfrog"]
    case = suite.case(f"tidelog on {operations('triangles')}")
    figures = tuple(case.measure(SMALL))
    assert [figure.what for figure in figures] == ["1,000 rows", "4,000 rows"]
    assert suite.plot is not None
    picture = ElementTree.fromstring(chart(suite.plot, [Outcome(case, figures)]))
    (line,) = (e for e in picture.iter() if e.tag.endswith("polyline"))
    assert len(line.attrib["points"].split()) == 2
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert {"triangles", "limit 8", "1,000", "10,000", suite.plot.x, suite.plot.y} <= set(texts)
    assert not chart(suite.plot, [Outcome(case, (Figure("without a point", 1.0),))])
