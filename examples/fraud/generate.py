"""Writes payments and devices of a made-up bank, as files that arrive one after the other.

    python examples/fraud/generate.py FOLDER [FILES] [PAYMENTS]

FOLDER gets a copy of the pipeline as well. The same payments come out every time.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
import time
from pathlib import Path
from random import Random

START = dt.datetime(2026, 3, 1)
ACCOUNTS = 2_000


def payments(rng: Random, number: int, count: int, sent: list[str]) -> list[str]:
    """Return the lines of a file: an hour of payments, some tries of cards, and cancellations."""
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
        lines.append(f"+,{len(sent)},A0001,{begin},much")  # somebody's mistake
    return ["op,id,account,at,amount", *lines]


def devices(rng: Random, count: int) -> list[str]:
    """Return the lines of a file: which account was seen on which device."""
    return [
        json.dumps(
            {
                "account": f"A{rng.randrange(ACCOUNTS):04}",
                "device": f"d{rng.randrange(4 * ACCOUNTS)}",
            }
        )
        for _ in range(count)
    ]


def main(folder: Path, files: int = 8, count: int = 2_500) -> None:
    """Write everything."""
    rng = Random(17)
    here = Path(__file__).parent
    sent: list[str] = []
    for name in ("in/payment", "in/device"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("fraud.dl", "fraud.toml"):
        shutil.copy(here / name, folder / name)
    for number in range(files):
        found = {
            f"in/payment/{number:03}.csv": payments(rng, number, count, sent),
            f"in/device/{number:03}.json": devices(rng, count // 5),
        }
        for name, lines in found.items():
            path = folder / name
            path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            os.utime(path, (time.time() - files + number,) * 2)  # in the order of their numbers


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
