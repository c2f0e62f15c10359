"""The seed of random tests: from the commit, the same in all processes, told, and replaceable."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import seeds
from tests.seeds import ROOT, SEED, VARIABLE, case_seeds, seed_blocks, seed_of, seeded

GIT = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")


@pytest.fixture
def no_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run([*GIT, *words], cwd=tmp_path, check=True)
    return tmp_path.resolve()


@pytest.mark.usefixtures("no_seed")
def test_every_commit_has_a_seed_of_its_own(repository: Path) -> None:
    first, origin = seeds.find(repository)
    assert seeds.find(repository) == (first, origin)
    known = seeds.commit(repository)
    assert known is not None
    assert origin == f"from commit {known[:12]}"
    subprocess.run([*GIT, "commit", "-q", "--allow-empty", "-m", "2"], cwd=repository, check=True)
    assert seeds.find(repository)[0] != first


@pytest.mark.usefixtures("no_seed")
def test_without_git_it_follows_from_the_files(tmp_path: Path) -> None:
    file = tmp_path / "src" / "a.py"
    file.parent.mkdir()
    file.write_text("x = 1\n")
    first, origin = seeds.find(tmp_path)
    assert "without git" in origin
    assert seeds.find(tmp_path)[0] == first
    file.write_text("x = 2\n")
    assert seeds.find(tmp_path)[0] != first


@pytest.mark.usefixtures("no_seed")
def test_the_repository_around_an_archive_is_not_asked(repository: Path) -> None:
    inner = repository / "unpacked"
    (inner / "src").mkdir(parents=True)
    assert seeds.commit(inner) is None


def test_the_variable_replaces_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "17")
    assert seeds.find() == (17, f"given by {VARIABLE}")


def test_labels_tell_generators_apart() -> None:
    assert seeded("a", 1).random() == seeded("a", 1).random()
    assert len({seed_of("a", 1), seed_of("a", 2), seed_of("b", 1), seed_of("a 1")}) == 4


def test_blocks_have_all_cases_and_names_without_the_seed() -> None:
    blocks = seed_blocks(25, 10, offset=7)
    assert [block.id for block in blocks] == ["0-9", "10-19", "20-24"]
    assert [seed for block in blocks for seed in block.values[0]] == list(case_seeds(25, 7))
    assert case_seeds(1, 7)[0] == SEED + 7


def fixed_or_unknown_seeds(text: str) -> list[int]:
    """Return the lines that make a generator without a seed, or with a number as its seed."""
    lines = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        seeded_elsewhere = node.args and not isinstance(node.args[0], ast.Constant)
        if name in {"urandom", "SystemRandom"} or (
            name in {"Random", "default_rng"} and not seeded_elsewhere
        ):
            lines.append(node.lineno)
    return lines


def test_the_search_for_other_seeds() -> None:
    text = (
        "Random(1)\nrandom.Random(seed)\nrandom.Random()\nnp.random.default_rng(3)\nos.urandom(4)"
    )
    assert fixed_or_unknown_seeds(text) == [1, 3, 4, 5]


def test_no_test_draws_from_elsewhere() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        found = fixed_or_unknown_seeds(path.read_text(encoding="utf-8"))
        assert not found, f"{path}, lines {found}: take the generator from tests/seeds.py"


CASE = """
import json, os, pathlib
from hypothesis import given, settings, strategies as st
from tests.seeds import SEED

drawn = [SEED]

@settings(max_examples=5, database=None)
@given(st.sampled_from(range(1_000_000)))  # integers() also draws constants of loaded modules
def test_numbers_are_drawn(number):
    drawn.append(number)

def test_it_fails():
    pathlib.Path(os.environ["DRAWN"]).write_text(json.dumps(drawn))
    raise AssertionError
"""


def run(folder: Path, *arguments: str, seed: int | None) -> tuple[str, list[int]]:
    """Run the case, with or without a seed that is given; return what it says and what it draws."""
    case, drawn = folder / "test_case.py", folder / "drawn.json"
    case.write_text(CASE)
    environment = {**os.environ, "DRAWN": str(drawn)}
    environment.pop(VARIABLE)
    if seed is not None:
        environment[VARIABLE] = str(seed)
    words = ["-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.conftest", *arguments]
    done = subprocess.run(
        [sys.executable, *words, f"--rootdir={folder}", str(case)],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    return done.stdout, json.loads(drawn.read_text())


def test_a_run_is_repeated_by_the_seed_in_its_header(tmp_path: Path) -> None:
    said, first = run(tmp_path, "-n", "1", seed=None)
    told = re.search(rf"^seed: (\d+), from .*{VARIABLE}=\1 ", said, re.MULTILINE)
    assert told is not None, said
    assert int(told[1]) == first[0]
    assert f"{VARIABLE}={told[1]}" in said.partition("FAILURES")[2], said
    assert run(tmp_path, "-n", "0", seed=first[0])[1] == first
    assert run(tmp_path, "-n", "0", seed=first[0] + 1)[1][1:] != first[1:]
