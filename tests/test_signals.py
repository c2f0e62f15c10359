"""Tests that interrupt themselves pass where the shell lets commands ignore Ctrl-C.

So it is in the background of a script, and under nohup.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HANDLER = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"


def test_this_process_and_its_children_can_be_interrupted() -> None:
    # A Spark session of an earlier test may have put its own handler there.
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    done = subprocess.run(
        [sys.executable, "-c", HANDLER], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"


def test_where_the_shell_ignores_interrupts() -> None:
    """In such a shell the test above passes, and some that send the signal, in a worker."""
    (interrupts,) = ROOT.glob("tests/*/test_interrupts.py")
    chosen = "can_be_interrupted or interrupts_are_noted or comes_at_the_end"
    command = [sys.executable, "-m", "pytest", "-n", "1", "-p", "no:cacheprovider", "-k", chosen]
    done = subprocess.run(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", *command, __file__, str(interrupts)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 3 passed" in done.stdout, done.stdout


def test_the_shell_above_does_ignore_them() -> None:
    done = subprocess.run(
        ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-c", HANDLER],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "False\n"
