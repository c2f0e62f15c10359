"""Figures as tables, as Markdown and as JSON."""

import json

import pytest

import tidelog
from tidelog.bench.model import (
    OURS,
    BenchCase,
    Figure,
    Outcome,
    Request,
    Scale,
    Suite,
    Target,
)
from tidelog.bench.report import (
    BEGIN,
    END,
    SuiteResult,
    bytes_text,
    number_text,
    placed,
    seconds_text,
    sections,
)


def unused(request: Request) -> None:
    raise AssertionError


MINE = BenchCase(OURS, unused, "graph")  # type: ignore[arg-type]
PEER = BenchCase("peer", unused, "graph")  # type: ignore[arg-type]
ABSENT = BenchCase("other", unused, "graph")  # type: ignore[arg-type]
SUITE = Suite(
    "demo",
    "a demonstration",
    (MINE, PEER, ABSENT),
    (
        Target("bootstrap", 1.0, " s", lambda found: found.seconds("bootstrap", "graph")),
        Target(
            "peer's",
            100.0,
            "x",
            lambda found: (
                found.seconds("bootstrap", "graph", "peer") / found.seconds("bootstrap", "graph")
            ),
            at_least=True,
        ),
        Target("absent", 1.0, " s", lambda found: found.seconds("nothing")),
    ),
)
OUTCOMES = (
    Outcome(MINE, (Figure("bootstrap", 0.5, 1000, 21.25, peak_bytes=2_000_000),)),
    Outcome(PEER, (Figure("recompute", 5.0, 1000, against="bootstrap", peak_bytes=3_000_000),)),
    Outcome(ABSENT, not_measured="other is not installed"),
)


def test_lines() -> None:
    lines = list(SuiteResult(SUITE, Scale.FULL, OUTCOMES).cells())
    assert lines == [
        ("tidelog", "graph: bootstrap", "500 ms", "", "2 MB", "21.2 B", "1,000", ""),
        ("peer", "graph: recompute", "5 s", "10x ours", "3 MB", "", "1,000", ""),
        ("other", "graph: all", *[""] * 5, "not measured: other is not installed"),
    ]


def test_what_came_before_a_crash_is_kept() -> None:
    crashed = Outcome(MINE, OUTCOMES[0].figures, "killed by signal 9")
    lines = list(SuiteResult(SUITE, Scale.FULL, (crashed,)).cells())
    assert [(line[1], line[-1]) for line in lines] == [
        ("graph: bootstrap", ""),
        ("graph: the rest", "not measured: killed by signal 9"),
    ]


@pytest.mark.parametrize(
    ("scale", "verdicts"),
    [(Scale.FULL, ["met", "", ""]), (Scale.SMALL, ["small scale", "", ""])],
)
def test_targets(scale: Scale, verdicts: list[str]) -> None:
    lines = list(SuiteResult(SUITE, scale, OUTCOMES).target_cells())
    assert lines[0] == ("bootstrap", "≤ 1 s", "0.5 s", verdicts[0])
    assert lines[2] == ("absent", "≤ 1 s", "not measured", "")


def test_peers_are_found_by_name() -> None:
    outcomes = (OUTCOMES[0], Outcome(PEER, (Figure("bootstrap", 5.0),)))
    lines = list(SuiteResult(SUITE, Scale.FULL, outcomes).target_cells())
    assert lines[1] == ("peer's", "≥ 100x", "10x", "missed")


def test_json() -> None:
    data = json.loads(json.dumps(SuiteResult(SUITE, Scale.FULL, OUTCOMES).as_data()))
    assert data["cases"][1]["figures"][0]["ratio"] == 10.0
    assert data["cases"][2]["not_measured"] == "other is not installed"
    assert data["targets"][0]["met"] is True
    assert data["targets"][2]["met"] is None


def test_markdown() -> None:
    about: dict[str, object] = {
        "date": "2024-01-01", "cpus": 2, "memory_bytes": None, "load": None, "system": "Linux",
        "python": "3.11", "versions": {"tidelog": "0.1.0", "duckdb": None},
        "commit": "abc1234",
    }  # fmt: skip
    found = sections(about, Scale.FULL, [SuiteResult(SUITE, Scale.FULL, OUTCOMES)])
    assert list(found) == ["demo"]
    text = found["demo"]
    assert text.startswith("### demo\n\nA demonstration.\n")
    assert "2 CPUs, Linux, Python 3.11, tidelog 0.1.0, commit abc1234; scale full." in text
    assert "| tidelog | graph: bootstrap | 500 ms |  | 2 MB | 21.2 B | 1,000 |  |" in text
    assert "| bootstrap | ≤ 1 s | 0.5 s | met |" in text


def test_sections_go_between_the_markers() -> None:
    page = f"# Page\n\n{BEGIN}\nold\n{END}\n\nthe end\n"
    new = {"b": "### b\n\nnew\n"}
    once = placed(new, page, "abc")
    assert once == f"# Page\n\n{BEGIN}\n\n### b\n\nnew\n\n{END}\n\nthe end\n"
    assert placed(new, once, "abc") == once
    assert placed(new, "", "abc") == "### b\n\nnew\n"
    with pytest.raises(tidelog.UsageError, match="no place for the tables"):
        placed(new, "# Another page\n", "abc")


def test_a_run_replaces_only_the_suites_that_it_measured() -> None:
    page = placed({"a": "### a\n\n1\n", "c": "### c\n\n3\n"}, f"{BEGIN}\n{END}\n", "abc")
    page = placed({"b": "### b\n\n2\n"}, page, "abc")
    page = placed({"c": "### c\n\n4\n"}, page, "abc")
    assert page == f"{BEGIN}\n\n### a\n\n1\n\n### b\n\n2\n\n### c\n\n4\n\n{END}\n"


def test_numbers() -> None:
    assert [number_text(x) for x in (0.01234, 1.0, 12.0, 12.34, 123.4, 12345.6)] == [
        "0.0123", "1", "12", "12.3", "123", "12,346",
    ]  # fmt: skip
    assert [seconds_text(x) for x in (12.0, 0.0125, 2e-6, 1e-7)] == [
        "12 s", "12.5 ms", "2 µs", "0.10 µs",
    ]  # fmt: skip
    assert [bytes_text(x) for x in (2_500_000, 2_500_000_000)] == ["2 MB", "2.50 GB"]
