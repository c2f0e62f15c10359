"""The example of fraud gives what its payments say, computed here in another way."""

from __future__ import annotations

import csv
import datetime as dt
import importlib.util
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tidelog import Database
from tidelog.spark import Pipeline

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fraud"
HOUR = dt.timedelta(hours=1)


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kept_payments(folder: Path) -> dict[str, tuple[str, dt.datetime, Decimal]]:
    """Return the payments that were not cancelled, by id."""
    kept = {}
    for file in sorted((folder / "in" / "payment").iterdir()):
        with open(file, encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                if row["amount"] == "much":
                    continue
                if row["op"] == "-":
                    kept.pop(row["id"], None)
                else:
                    at = dt.datetime.fromisoformat(row["at"])
                    kept[row["id"]] = (row["account"], at, Decimal(row["amount"]))
    return kept


def test_the_alerts_are_those_of_the_payments(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script("generate").main(tmp_path, 4, 600)
    with Pipeline.from_file(tmp_path / "fraud.toml") as pipeline:
        done = pipeline.run(spark)
        assert pipeline.totals().quarantined == 1
    assert [epoch.epoch for epoch in done] == [0]
    payments = kept_payments(tmp_path)
    by_account: dict[str, list[tuple[dt.datetime, Decimal, int]]] = {}
    for number, (account, at, amount) in payments.items():
        by_account.setdefault(account, []).append((at, amount, int(number)))
    alerts = set()
    for account, own in by_account.items():
        for at, amount, number in own:
            before = {t for t, x, _ in own if x < 100 and at - HOUR <= t < at}
            if amount > 400 and len(before) > 1:
                alerts.add((account, number, at, amount))
    found = pq.read_table(tmp_path / "out" / "alert").to_pylist()
    assert alerts
    for row in found:  # Spark writes moments, in UTC
        row["at"] = row["at"].replace(tzinfo=None)
    assert {tuple(row.values()) for row in found} == alerts
    assert len(found) == len(alerts)
    risks = {row["account"]: row for row in pq.read_table(tmp_path / "out" / "risk").to_pylist()}
    assert risks.keys() == by_account.keys()
    for account, own in by_account.items():
        amounts = [amount for _, amount, _ in own]
        risk = risks[account]
        assert (risk["payments"], risk["total"]) == (len(own), sum(amounts))
        assert risk["largest"] == max(amounts)
        assert risk["alerts"] == sum(alert[0] == account for alert in alerts)
    script("show").main(tmp_path)
    assert f"{len(payments):,} payments of {len(by_account):,} accounts" in capsys.readouterr().out


def test_pairs_of_small_payments_are_not_stored() -> None:
    database = Database((EXAMPLE / "fraud.dl").read_text(encoding="utf-8"))
    noon = dt.datetime(2026, 3, 1, 12)
    with database.transaction() as transaction:
        times = [noon + dt.timedelta(minutes=i) for i in range(50)]
        rows = [(i, "A1", at, Decimal(9)) for i, at in enumerate(times)]
        transaction.insert("payment", [*rows, (50, "A1", noon + HOUR, Decimal(500))])
    assert len(database.view("tried")) == 50 * 49 // 2
    assert database.memory["tried"] == 0
    assert [row[1] for row in database.view("alert")] == [50]
