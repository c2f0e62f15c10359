"""A few golden cases through the installed script: exit codes and both streams, for real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.cases import GOLDEN, read_case, read_output
from tidelog.cli.main import main

SCRIPT = Path(sys.executable).with_name("tidelog")
CASES = (
    "epochs/inserts-and-deletes",
    "epochs/failing-epoch",
    "errors/several-mistakes-at-once",
    "io/printed-results",
    "io/two-outputs-in-one-file",
)


def tidelog(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script in `folder`."""
    # UTF-8 and a fixed width, whatever terminal the tests are started from.
    environment = {**os.environ, "PYTHONUTF8": "1", "COLUMNS": "80", "NO_COLOR": "1"}
    return subprocess.run(
        [SCRIPT, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, tmp_path: Path) -> None:
    case = read_case(GOLDEN / f"{name}.case")
    case.lay_out(tmp_path)
    ended = tidelog(tmp_path, *case.arguments)
    assert ended.returncode == case.exit_code
    assert ended.stdout == case.stdout
    assert bool(ended.stderr) == bool(case.errors)
    assert all(text in ended.stderr for text in case.errors)
    assert read_output(tmp_path / "out") == case.expected


def test_results_on_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "p.dl").write_text(".decl a(x: number)\n.output a\na(1).\n")
    ended = tidelog(tmp_path, "run", "p.dl", "-D", "-")
    ruler, double = "-" * 15, "=" * 15
    assert ended.stdout == f"{ruler}\na\n{double}\n1\n{double}\n"
    assert (ended.returncode, ended.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["p.dl"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "missing.dl"], "there is no program file `missing.dl`"),
        (["run", "p.dl", "--epochs", "nowhere"], "the folder of epochs `nowhere` does not exist"),
        (["run", "p.dl", "--no-such-option"], "No such option"),
        (["run"], "Missing argument"),
        (["walk", "p.dl"], "No such command"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "p.dl").write_text(".decl a(x: number)\n.output a\na(1).\n")
    ended = tidelog(tmp_path, *arguments)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stdout == ""
    assert [path.name for path in tmp_path.iterdir()] == ["p.dl"]


def test_an_interrupt_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "p.dl").write_text(".decl p(x: number) p(1). .output p")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tidelog.cli.run.open_database", interrupted)
    monkeypatch.setattr("sys.argv", ["tidelog", "run", "p.dl", "-D", "out"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted: nothing was written\n"
    assert not (tmp_path / "out").exists()
