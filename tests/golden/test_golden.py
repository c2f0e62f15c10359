"""Each golden case, through the command line's own code in this process."""

import sys
from pathlib import Path

import pytest

from tests.golden.cases import GOLDEN, case_files, read_case, read_output
from tidelog.cli.main import main


@pytest.mark.parametrize("engine", ["reference", "kernel"])
@pytest.mark.parametrize(
    "path", case_files(), ids=lambda path: path.relative_to(GOLDEN).with_suffix("").as_posix()
)
def test_case(
    path: Path,
    engine: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    case = read_case(path)
    case.lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["tidelog", *case.arguments, "--engine", engine])

    with pytest.raises(SystemExit) as ended:
        main()

    printed = capsys.readouterr()
    if not case.errors:
        assert printed.err == ""
    for text in case.errors:
        assert text in printed.err
    assert (ended.value.code or 0) == case.exit_code
    assert printed.out == case.stdout
    assert read_output(tmp_path / "out") == case.expected
