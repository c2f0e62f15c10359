"""What a run shows of its epochs."""

from __future__ import annotations

import io
from collections import deque
from unittest import mock

import pytest
from rich.console import Console

from tidelog.cli.pipeline_progress import _table, describe, shown_epochs
from tidelog.spark import EpochDone

DONE = EpochDone(
    epoch=7, received=1200, accepted=1199, quarantined=1, inserted=1100, deleted=3, written=42,
    how="update", lag=1.25, seconds=0.5, jobs=3, tasks=8,
)  # fmt: skip


def test_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_epochs("roads") as show:
        show(DONE)
    line = (
        "epoch 7, 1,200 rows in, 1 quarantined, +1,100 -3 given, 42 rows out,"
        " lag 1.2 s, update, 3 jobs, 8 tasks, 0.50 s"
    )
    assert capsys.readouterr().err == f"{line}\n"
    assert describe(DONE) == line


def test_a_table() -> None:
    out = io.StringIO()
    Console(file=out, width=120).print(_table("roads", deque([DONE])))
    for word in ("roads", "rows in", "1,200", "+1,100 -3", "1.2 s", "update", "0.50 s"):
        assert word in out.getvalue()


def test_a_terminal_gets_the_table() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    with mock.patch("sys.stderr", terminal), shown_epochs("roads") as show:
        show(DONE)
    assert "quarantined" in terminal.getvalue()
    assert "epoch 7," not in terminal.getvalue()
