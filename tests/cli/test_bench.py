"""`tidelog bench`, from the command line."""

import json
import sys
from pathlib import Path
from unittest import mock

import pytest

from tidelog.bench.suites import SUITES
from tidelog.cli.main import main


def run(*words: str) -> int:
    with mock.patch.object(sys, "argv", ["tidelog", "bench", *words]):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--list") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(SUITES)


def test_tables_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results, page = tmp_path / "results.json", tmp_path / "page.md"
    words = ("language", "galen", "--no-peers", "--json", str(results), "--markdown", str(page))
    assert run(*words) == 0
    said = capsys.readouterr()
    assert "front end: check a program" in said.out
    assert "not measured: needs --data" in said.out
    assert said.err == ""
    data = json.loads(results.read_text(encoding="utf-8"))
    assert list(data) == ["machine", "scale", "suites"]
    assert list(data["suites"]) == ["galen", "language"]
    assert data["machine"]["cpus"] >= 1
    assert "### language" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("closur",), "there is no suite `closur`; did you mean `closure`?"),
        (("zzzzz",), "there is no suite `zzzzz`; there are closure, join"),
        (("language", "--data", "nowhere"), "--data: nowhere is not a folder"),
        (("language", "--plot", "x.svg"), "name one that has a plot: leapfrog"),
    ],
)
def test_wrong_usage(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert said in capsys.readouterr().err


def test_a_page_without_marks_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n", encoding="utf-8")
    assert run("--markdown", str(page)) == 2
    assert "no place for the tables" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8") == "# A page\n"
