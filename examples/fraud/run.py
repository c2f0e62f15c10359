"""Run the pipeline of this example while its files arrive, and show what came out.

    python examples/fraud/run.py FOLDER [FILES] [PAYMENTS]

Spark reads the first files, and the others while the pipeline runs. The pipeline ends by itself
when nothing new has come for some seconds.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import generate
import show

EVERY = 1.0  # seconds between two files


def deliver(folder: Path, files: int, count: int, ended: threading.Event) -> None:
    """Write the first files at once, and the others after the first epoch, one by one."""
    first_commit = folder / "state" / "checkpoint" / "commits" / "0"
    for number in generate.arrive(folder, files, count):
        while number == 1 and not first_commit.exists() and not ended.is_set():
            time.sleep(0.05)
        if number and ended.wait(EVERY):
            return


def main(folder: Path, files: int = 10, count: int = 2_500) -> int:
    """Run the pipeline; return its exit code."""
    generate.prepare(folder)
    ended = threading.Event()
    writer = threading.Thread(target=deliver, args=(folder, files, count, ended), daemon=True)
    writer.start()
    chart = folder / "epochs.svg"
    command = [
        str(Path(sys.executable).with_name("tidelog")), "pipeline", "run",
        str(folder / "fraud.toml"),
        "--continuous", "--until-idle", "4s", "--chart", str(chart),
    ]  # fmt: skip
    code = subprocess.run(command, check=False).returncode
    ended.set()
    writer.join()
    if code == 0:
        show.main(folder)
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
