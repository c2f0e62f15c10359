"""`tidelog run --stats`: sizes, what each epoch did, and times, on standard error."""

import sys
from pathlib import Path

import pytest

from tidelog.cli.main import main

PROGRAM = """
.decl edge(x: number, y: number)
.input edge
.decl reach(x: number, y: number)
.output reach
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
"""


@pytest.mark.parametrize("engine", ["reference", "kernel"])
def test_stats(
    engine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "p.dl").write_text(PROGRAM)
    (tmp_path / "edge.facts").write_text("1\t2\n2\t3\n")
    epoch = tmp_path / "epochs" / "monday"
    epoch.mkdir(parents=True)
    (epoch / "edge.changes").write_text("+\t3\t4\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    words = ["run", "p.dl", "-D", "out", "--epochs", "epochs", "--stats", "--engine", engine]
    monkeypatch.setattr(sys, "argv", ["tidelog", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "first evaluation: " in printed.err
    assert "given +2 -0" in printed.err
    assert "epoch monday: " in printed.err
    assert "given +1 -0" in printed.err
    assert ("recompute" if engine == "reference" else "elastic") in printed.err
    rows = [line for line in printed.err.split("\n") if line.startswith("│ reach ")]
    assert rows[0].split("│")[2:5] == [" 6    ", " 0     ", " 2 rules    "]
    assert rows[0].split("│")[5].strip().isdigit() == (engine == "kernel")
    assert "+3 -0" in rows[2]
