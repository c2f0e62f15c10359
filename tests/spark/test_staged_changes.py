"""Changes that Spark writes in the job of a sharded epoch, and the order of routed rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from tests.seeds import seeded_arrays
from tests.spark.test_sharded import Sharded
from tidelog.errors import StateError
from tidelog.sharding.manifest import Epochs
from tidelog.spark import Sink
from tidelog.spark.shard_processes import of_shards
from tidelog.spark.shard_routing import KEY, in_order_of_keys, with_order
from tidelog.spark.shard_staging import BY_SPARK

PAID = """
.decl payment(account: number, id: number, amount: number)
.decl paid(account: number, n: number, total: number)
paid(a, n, t) :- payment(a, _, _), n = count : { payment(a, _, _) },
    t = sum x : { payment(a, _, x) }.
"""


class Paid:
    """A pipeline of PAID with a sink of changes, and what was paid."""

    def __init__(self, path: Path, **keys: Any) -> None:
        self.folder = Sharded(path, PAID)
        self.out = path / "out"
        self._sink = Sink("paid", "changes", path=str(self.out), **keys)
        self._rows: dict[int, list[int]] = {}
        self._next = 0

    def pay(self, accounts: int, *, rounds: int = 1) -> None:
        """Write a file with payments."""
        lines = []
        for account in list(range(accounts)) * rounds:
            self._next += 1
            lines.append(f"+,{account},{self._next},{self._next % 7}\n")
            self._rows.setdefault(account, []).append(self._next % 7)
        self.folder.write(f"payment/{self._next}", "".join(lines))

    def run(self, spark: Any) -> Any:
        """Run the pipeline; check that the sink is the view, and return the last epoch, if any."""
        source = self.folder.source("payment", "csv", mode="changes")
        done = self.folder.run(spark, source, sinks=[self._sink])
        sent = spark.read.parquet(str(self.out)).toArrow().to_pylist()
        net: dict[tuple[int, ...], int] = {}
        for row in sorted(sent, key=lambda row: (row["epoch"], row["op"] == "+")):
            key = row["account"], row["n"], row["total"]
            net[key] = net.get(key, 0) + (1 if row["op"] == "+" else -1)
        wanted = {(a, len(paid), sum(paid)) for a, paid in self._rows.items()}
        assert {row for row, count in net.items() if count} == wanted
        assert set(net.values()) <= {0, 1}
        return done[-1] if done else None

    @property
    def kept(self) -> set[str]:
        """How the names of the files with changes end."""
        names = (path.name for path in (self.folder.path / "state").rglob("changes/*"))
        return {name[name.index(".") :] for name in names}

    @property
    def staged(self) -> list[Path]:
        """What is left in the staged folder."""
        return [path for path in (self.folder.path / "state").rglob("staged/*/*") if path.exists()]


def test_an_epoch_with_its_sink_is_one_job(spark: Any, tmp_path: Path) -> None:
    paid = Paid(tmp_path)
    paid.pay(50)
    paid.run(spark)
    paid.pay(40)
    done = paid.run(spark)
    assert (done.jobs, done.written) == (1, 80)
    assert paid.kept == {BY_SPARK}
    files = sorted(paid.out.glob("*-000000000001*"))
    assert not any(field.nullable for file in files for field in pq.read_schema(file))
    both = pa.dataset.dataset(paid.out).to_table()  # the first epoch was written in another way
    assert both.num_rows == 50 + 80
    assert sorted(path.name for path in paid.out.glob("*-000000000001*")) == [
        "epoch-000000000001-00000.parquet", "epoch-000000000001-00001.parquet",
    ]  # fmt: skip
    assert not paid.staged
    paid.pay(1)
    assert paid.run(spark).written == 2  # in one of the shards


def test_a_sink_of_another_form_is_written_by_a_job_of_its_own(spark: Any, tmp_path: Path) -> None:
    paid = Paid(tmp_path, options={"compression": "gzip"})
    for _ in range(2):
        paid.pay(5)
        done = paid.run(spark)
    assert done.jobs == 2
    assert paid.kept == {".parquet"}


@pytest.mark.parametrize("after", [False, True])
def test_an_end_around_the_commit(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    paid = Paid(tmp_path)
    paid.pay(20)
    paid.run(spark)
    commit = Epochs.commit

    def dying(self: Epochs, epoch: Any) -> None:
        if after:
            commit(self, epoch)
        raise StateError("the end")

    paid.pay(20)
    monkeypatch.setattr(Epochs, "commit", dying)
    with pytest.raises(StateError, match="the end"):
        paid.run(spark)
    monkeypatch.undo()
    assert not list(paid.out.glob("*-000000000001*"))
    paid.run(spark)
    assert list(paid.out.glob("*-000000000001*"))
    assert len(list((tmp_path / "state").rglob("changes/*"))) == 2  # what nobody names is removed


def test_a_shard_has_a_process_of_its_own(spark: Any) -> None:
    def process(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"shard": batch.column(0), "pid": [os.getpid()]})

    frame = of_shards(spark, process, 3, "shard long, pid long")
    assert frame.rdd.getNumPartitions() == 3
    first, second = (sorted(map(tuple, frame.collect())) for _ in range(2))
    assert first == second
    assert len({pid for _, pid in first}) == 3


def test_the_order_of_routed_rows() -> None:
    rng = seeded_arrays("routed order")
    for _ in range(200):
        tables, rows = [], []
        for start in rng.permutation(3):
            for part in range(2):  # of one range of a file
                n = int(rng.integers(1, 5))
                ids = np.sort(rng.choice(10, n, replace=False)) + 10 * part + 100 * int(start)
                starts = np.full(n, start)
                if n > 1 and rng.random() < 0.3:  # two ranges in one table
                    starts[n // 2 :] += 10
                table = pa.table({"x": ids})
                tables.append(with_order(table, [np.zeros(n, np.int64), starts, ids]))
                rows += list(zip(starts.tolist(), ids.tolist(), strict=True))
        order = rng.permutation(len(tables))
        found = in_order_of_keys([tables[i] for i in order])
        assert found["x"].to_pylist() == [x for _, x in sorted(rows)]
        assert found.column_names[0] == "x"


def test_rows_in_order_carry_no_keys() -> None:
    ids = np.array([3, 5, 6])
    table = with_order(pa.table({"x": ids}), [np.zeros(3, np.int64), ids])
    assert table.column_names == ["x"]
    assert not in_order_of_keys([table]).schema.metadata
    apart = with_order(pa.table({"x": ids}), [np.array([0, 1, 0]), ids])
    assert apart.column_names == ["x", f"{KEY} 0", f"{KEY} 1"]
    assert in_order_of_keys([apart])["x"].to_pylist() == [3, 6, 5]
