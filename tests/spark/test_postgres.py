"""JDBC with a real PostgreSQL server, in and out. Its driver comes from Maven, as the docs say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.spark.postgres import Server, server

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
.decl payment(id: number, account: symbol, amount: decimal(9, 2), at: timestamp, checked: bool)
.decl spent(account: symbol, total: decimal(9, 2), last: timestamp)
spent(a, t, m) :- payment(_, a, _, _, _), t = sum x : { payment(_, a, x, _, _) },
    m = max z : { payment(_, a, _, z, _) }.
.decl note(id: number, text: symbol)
.decl noted(id: number, text: symbol)
noted(i, t) :- note(i, t).
"""
PIPELINE = """
[pipeline]
program = "spent.dl"
spark = { "spark.jars.packages" = "org.postgresql:postgresql:42.7.4", "spark.driver.memory" = "1g" }

[[source]]
relation = "payment"
format = "jdbc"
mode = "snapshot"
options = { url = "URL", driver = "org.postgresql.Driver", dbtable = "payment" }

[[source]]
relation = "note"
format = "jdbc"
watermark = "id"
options = { url = "URL", driver = "org.postgresql.Driver", dbtable = "note" }

[[sink]]
view = "spent"
format = "jdbc"
options = { url = "URL", driver = "org.postgresql.Driver", dbtable = "spent" }

[[sink]]
view = "noted"
format = "jdbc"
options = { url = "URL", driver = "org.postgresql.Driver", dbtable = "noted" }

[[sink]]
view = "spent"
what = "changes"
format = "jdbc"
options = { url = "URL", driver = "org.postgresql.Driver", dbtable = "spent_changes" }
"""
SPENT = "set time zone 'UTC'; select account, total, last from spent order by account"
CHANGES = (
    "set time zone 'UTC'; select account, total, last, op, epoch from spent_changes"
    " order by epoch, account, op desc"
)
CHANGED = [
    ["a", "10.25", "2024-02-29 12:00:00.000001+00", "+", "0"],
    ["b", "5.00", "2024-02-29 12:00:00+00", "+", "0"],
    ["a", "10.25", "2024-02-29 12:00:00.000001+00", "-", "1"],
    ["a", "11.75", "2025-01-01 00:00:00+00", "+", "1"],
    ["b", "5.00", "2024-02-29 12:00:00+00", "-", "1"],
]
TABLE = """
create table payment (id bigint, account text, amount numeric(9, 2), at timestamptz, checked bool);
insert into payment values
    (1, 'a', 10.25, '2024-02-29 12:00:00.000001+00', true),
    (2, 'b', 5, '2024-02-29 13:00:00+01', false);
create table note (id bigint, text text);
insert into note values (3, 'first'), (5, 'second');
"""
NOTED = "select id, text from noted order by id"


@pytest.fixture
def postgres() -> Iterator[Server]:
    with server() as running:
        yield running


class Driver:
    """A process with the pipeline, which runs it when it is told to."""

    def __init__(self, file: Path, log: IO[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "tests/spark/rounds.py", str(file)],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip

    def run(self) -> list[tuple[int, int, int, int]]:
        """Return for each epoch how many rows were received, bad, inserted and deleted."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("epochs "):
                keys = ("received", "quarantined", "inserted", "deleted")
                epochs = json.loads(line.removeprefix("epochs "))
                return [tuple(epoch[key] for key in keys) for epoch in epochs]
        raise AssertionError("the driver has ended")

    def end(self) -> int:
        """Have the process end, and return its code."""
        self._process.communicate(timeout=120)
        return self._process.returncode


def test_postgres_in_and_out(postgres: Server, tmp_path: Path) -> None:
    (tmp_path / "spent.dl").write_text(PROGRAM)
    file = tmp_path / "spent.toml"
    file.write_text(PIPELINE.replace("URL", postgres.url))
    postgres.run(TABLE)
    with open(tmp_path / "log", "w", encoding="utf-8") as log:
        driver = Driver(file, log)
        try:
            _rounds(postgres, driver, tmp_path)
        except BaseException:
            print((tmp_path / "log").read_text()[-4000:])
            raise
        finally:
            code = driver.end()
    assert code == 0


def _rounds(postgres: Server, driver: Driver, folder: Path) -> None:
    assert driver.run() == [(4, 0, 4, 0)]
    assert postgres.run(NOTED) == [["3", "first"], ["5", "second"]]
    first = [
        ["a", "10.25", "2024-02-29 12:00:00.000001+00"],
        ["b", "5.00", "2024-02-29 12:00:00+00"],
    ]
    assert postgres.run(SPENT) == first
    assert postgres.run(CHANGES) == [[*row, "+", "0"] for row in first]
    postgres.run(
        "delete from payment where id = 2;"
        "insert into payment values (3, 'a', 1.5, '2025-01-01 00:00:00+00', true),"
        " (4, 'c', 1, '2025-01-01 00:00:00+00', null);"  # a row without a value
        "insert into note values (4, 'below the watermark'), (6, 'third')"
    )
    assert driver.run() == [(4, 1, 2, 1)]
    assert driver.run() == []  # the same tables again
    assert postgres.run(NOTED) == [["3", "first"], ["5", "second"], ["6", "third"]]
    assert postgres.run(SPENT) == [["a", "11.75", "2025-01-01 00:00:00+00"]]
    assert postgres.run(CHANGES) == CHANGED
    (bad,) = (folder / "state" / "quarantine").rglob("*.jsonl")
    assert json.loads(bad.read_text())["reason"] == "column `checked`: no value"
    # Whatever a crash has kept from being remembered is written again, and once.
    for memory in (folder / "state" / "sinks").iterdir():
        known = json.loads(memory.read_text())
        memory.write_text(json.dumps({**known, "epoch": 0}))
    assert driver.run() == []
    assert postgres.run(SPENT) == [["a", "11.75", "2025-01-01 00:00:00+00"]]
    assert postgres.run(CHANGES) == CHANGED
    # Each sink has its epoch in the database, and nothing else is left there.
    assert postgres.run("select epoch from tidelog_epochs") == [["1"], ["1"], ["1"]]
    left = postgres.run("select tablename from pg_tables where tablename like 'tidelog%'")
    assert left == [["tidelog_epochs"]]
    postgres.run("alter table payment rename column amount to value")
    assert driver.run() == [(3, 3, 0, 0)]  # another schema: no row fits, so all stays as it is
