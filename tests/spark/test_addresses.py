"""Sources and sinks at addresses with a scheme, as in an object store or HDFS.

Hadoop's `viewfs` shows a local folder under another scheme. So nothing but Spark can reach it by
its address, and the test can look behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.spark.piping import PLACEMENTS, PROGRAM, Folder, expected
from tidelog.errors import TidelogError
from tidelog.spark import Sink, Source

EDGES = {(1, 2), (2, 3), (5, 6)}
MORE = {(3, 4), (6, 1)}
LABELS = {(1, "a"), (5, "b")}


@pytest.fixture
def lake(spark: Any, tmp_path: Path) -> Iterator[str]:
    """Return the address of a folder `lake`."""
    (tmp_path / "lake").mkdir()
    name = tmp_path.name.replace("_", "-")
    key = f"fs.viewfs.mounttable.{name}.link./lake"
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set(key, (tmp_path / "lake").as_uri())
    yield f"viewfs://{name}/lake"
    configuration.unset(key)


def write(path: Path, rows: set[tuple[Any, Any]], format: str, names: tuple[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    one, other = zip(*sorted(rows), strict=True)
    if format == "parquet":
        pq.write_table(pa.table({names[0]: one, names[1]: other}), path)
    else:
        lines = [",".join(names), *(f"{a},{b}" for a, b in sorted(rows))]
        path.write_text("\n".join(lines) + "\n")


def sent(spark: Any, path: Path) -> set[Any]:
    """Return the rows that a sink of changes has at the end."""
    held: set[Any] = set()
    for part in sorted(path.iterdir()):
        rows = spark.read.parquet(str(part)).toArrow().to_pylist()
        for row in sorted(rows, key=lambda row: str(row["op"]) == "+"):
            *values, op, _ = row.values()
            (held.add if op == "+" else held.remove)(tuple(values))
    return held


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_sources_and_sinks_at_addresses(
    spark: Any, tmp_path: Path, lake: str, placement: str, format: str
) -> None:
    folder, behind = Folder(tmp_path), tmp_path / "lake"
    folder.placement = PLACEMENTS[placement]
    options = {"header": "true"} if format == "csv" else {}
    sources = [
        Source("edge", format, f"{lake}/edge", options=options),
        Source("label", format, f"{lake}/label", options=options, mode="snapshot"),
    ]
    sinks = [
        Sink("reach", path=f"{lake}/reach"),
        Sink("reach", what="changes", path=f"{lake}/changes"),
        Sink("reaches", path=f"{lake}/reaches"),
    ]
    edges: set[Any] = set()
    for round_, (new, labels) in enumerate([(EDGES, LABELS), (MORE, {(3, "c")})]):
        write(behind / "edge" / f"day {round_} %41 [x] {{ü}}", new, format, ("x", "y"))
        write(behind / "label" / "all %41 [x]", labels, format, ("x", "name"))
        edges |= new
        folder.run(spark, *sources, sinks=sinks)
        facts = {"edge": edges, "label": labels}
        reach = expected(PROGRAM, facts, "reach")
        read = spark.read.parquet(f"{lake}/reach").toArrow().to_pylist()
        assert {tuple(row.values()) for row in read} == reach
        assert len(read) == len(reach)
        reaches = spark.read.parquet(f"{lake}/reaches").toArrow().to_pylist()
        assert {tuple(row.values()) for row in reaches} == expected(PROGRAM, facts, "reaches")
        assert sent(spark, behind / "changes") == reach
    assert folder.run(spark, *sources, sinks=sinks) == []  # nothing is new
    assert not any(path.name.startswith("viewfs") for path in tmp_path.iterdir())


def test_an_address_that_nobody_knows(spark: Any, tmp_path: Path, lake: str) -> None:
    folder = Folder(tmp_path)
    with pytest.raises(TidelogError) as error:
        folder.run(spark, Source("edge", "csv", "nowhere://x/edge"), sinks=[])
    assert 'No FileSystem for scheme "nowhere"' in str(error.value)
