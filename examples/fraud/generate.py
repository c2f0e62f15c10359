"""Generate payments and devices of a fictional bank, as a sequence of files.

    python examples/fraud/generate.py FOLDER [FILES] [PAYMENTS]

Also copies the pipeline to FOLDER. The output is the same every time. `arrive` writes the files one
after the other, as they would come in.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

START = dt.datetime(2026, 3, 1)
ACCOUNTS = 2_000


def payments(rng: Random, number: int, count: int, sent: list[str]) -> list[str]:
    """Return the lines of a file: an hour of payments, some card tests, and cancellations."""
    begin = START + dt.timedelta(hours=number)
    lines = []

    def pay(account: int, minute: float, amount: float) -> None:
        at = (begin + dt.timedelta(minutes=minute)).isoformat(sep=" ", timespec="seconds")
        sent.append(f"{len(sent)},A{account:04},{at},{amount:.2f}")
        lines.append(f"+,{sent[-1]}")

    for _ in range(count):
        pay(rng.randrange(ACCOUNTS), rng.uniform(0, 60), rng.lognormvariate(4.2, 0.8))
    for _ in range(3):
        account = rng.randrange(ACCOUNTS)
        for minute, amount in ((1, 9.5), (7, 19.0), (rng.uniform(8, 70), 480 + rng.random())):
            pay(account, minute, amount)
    if number:
        for _ in range(count // 50):
            lines.append(f"-,{rng.choice(sent)}")
    rng.shuffle(lines)
    if number % 3 == 1:
        lines.append(f"+,{len(sent)},A0001,{begin},much")  # a bad row
    return ["op,id,account,at,amount", *lines]


def devices(rng: Random, count: int) -> list[str]:
    """Return the lines of a file: the devices on which accounts were seen."""
    return [
        json.dumps(
            {
                "account": f"A{rng.randrange(ACCOUNTS):04}",
                "device": f"d{rng.randrange(4 * ACCOUNTS)}",
            }
        )
        for _ in range(count)
    ]


def prepare(folder: Path) -> None:
    """Write the pipeline, and folders for its input."""
    here = Path(__file__).parent
    for name in ("in/payment", "in/device"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("fraud.dl", "fraud.toml"):
        shutil.copy(here / name, folder / name)


def arrive(folder: Path, files: int, count: int) -> Iterator[int]:
    """Write one file of each kind at a time, and yield its number.

    A file must appear complete: it is written under a hidden name, and then renamed.
    """
    rng = Random(17)
    sent: list[str] = []
    for number in range(files):
        found = {
            f"in/payment/{number:03}.csv": payments(rng, number, count, sent),
            f"in/device/{number:03}.json": devices(rng, count // 5),
        }
        for name, lines in found.items():
            path = folder / name
            hidden = path.with_name(f".{path.name}")
            hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            hidden.rename(path)
        yield number


def main(folder: Path, files: int = 8, count: int = 2_500) -> None:
    """Write the pipeline and its input files."""
    prepare(folder)
    for number in arrive(folder, files, count):
        for path in (folder / "in").glob(f"*/{number:03}.*"):
            os.utime(path, (time.time() - files + number,) * 2)  # in the order of their numbers


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
