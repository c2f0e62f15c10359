"""Cases in processes of their own: what becomes of them, and of those that cannot run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.bench.model import OURS, BenchCase, Figure, Request, Scale, Suite
from tidelog.bench.runner import run_case, run_suite, why_not
from tidelog.bench.suites import SUITES

SMALL = Request(Scale.SMALL, None)


def nothing(request: Request) -> Iterator[Figure]:
    yield Figure("nothing")


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (BenchCase(OURS, nothing), ""),
        (BenchCase("duckdb", nothing), "--no-peers"),
        (BenchCase(OURS, nothing, full_only=True), "only with --scale full"),
        (
            BenchCase(OURS, nothing, files=("galen/galen.dl",)),
            "needs --data, the folder of the facts",
        ),
        (BenchCase(OURS, nothing, module="no_such_engine"), "no_such_engine is not installed"),
        (BenchCase(OURS, nothing, commands=("no-such",)), "there is no `no-such` on PATH"),
    ],
)
def test_why_a_case_is_not_measured(case: BenchCase, reason: str) -> None:
    assert why_not(case, SMALL, peers=False) == reason


def test_missing_facts_are_named(tmp_path: Path) -> None:
    case = BenchCase(OURS, nothing, files=("galen/galen.dl",))
    reason = why_not(case, Request(Scale.SMALL, tmp_path), peers=True)
    assert reason == f"{tmp_path / 'galen/galen.dl'} does not exist"


def test_a_case_runs_in_a_process_of_its_own() -> None:
    suite = SUITES["language"]
    seen: list[str] = []
    outcomes = list(run_suite(suite, SMALL, True, lambda _, case: seen.append(case.name)))
    assert seen == [case.name for case in suite.cases]
    for outcome in outcomes:
        assert not outcome.not_measured
        (figure,) = outcome.figures
        assert figure.seconds is not None and figure.seconds > 0
        assert figure.peak_bytes > 1_000_000


def test_a_crash_is_told_and_harms_no_other() -> None:
    outcome = run_case(Suite("no-such-suite", "", ()), BenchCase(OURS, nothing), SMALL)
    assert outcome.not_measured == "failed: KeyError: 'no-such-suite'"


def test_what_takes_too_long_is_ended() -> None:
    outcome = run_case(SUITES["language"], BenchCase(OURS, nothing, seconds=0.01), SMALL)
    assert outcome.not_measured == "ended after 0 s"


def test_names_of_cases_are_unique() -> None:
    for suite in SUITES.values():
        names = [case.name for case in suite.cases]
        assert len(set(names)) == len(names), suite.name
