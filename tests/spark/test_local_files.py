"""Files that are read here give the rows that Spark reads, or are left to it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.seeds import seeded
from tidelog import Program
from tidelog.spark import Source
from tidelog.spark.epoch_input import EpochInput
from tidelog.spark.listing import list_files
from tidelog.spark.source_files import FileSource
from tidelog.spark.sources import Batch

PROGRAM = """
.decl two(x: number, y: symbol)
.decl one(x: symbol)
.decl typed(n: number, f: float, s: symbol, b: bool, d: date, t: timestamp, m: decimal(9, 2))
"""


def source(path: Path, relation: str, format: str, **keys: Any) -> FileSource:
    program = Program.parse(PROGRAM)
    spec = Source(relation, format, str(path), **keys)
    return FileSource(spec, relation, program.relations[relation], program.records)


def by_both(spark: Any, polled: FileSource) -> tuple[Any, Any]:
    """Return the rows as they are read here, and as Spark reads them, both checked."""
    files = list_files(polled.spec.path, spark)
    groups = polled._by_schema(files, spark)
    here, there = [], []
    for group in groups:
        table = polled._read_here(group, spark)
        if table is None:
            return None, None
        here.append(checked(polled, table, {}))
        polled.started = True
        read = EpochInput(spark, [(polled, Batch([polled._part(group, spark)], {}, group))])
        tables = read.tables()
        empty = polled._part(group, spark).frame.limit(0).toArrow()
        there.append(checked(polled, tables.get(0, empty), read.known_files))
    return here, there


def checked(polled: FileSource, table: Any, files: Any) -> Any:
    found = polled.checker.check(table, files)
    came = None if found.inserted is None else found.inserted.tolist()
    rows = list(found.rows)
    if polled.spec.mode == "append":  # Spark gives them as its tasks come to an end
        rows.sort()
    # In the quarantine Spark's values of JSON are texts, those of Arrow have their types.
    bad = [(row.reason, row.file) if polled.spec.format == "json" else row for row in found.bad]
    return found.received, rows, came, sorted(map(str, bad))


ODD = ["", " ", "a b", "7", "-1", "x", "ü", "+", "\t", "null", "#1", "'", "1e3", "00", '"', "\\n"]


def some_csv(rng: Random, columns: int, separator: str) -> str:
    odd = ODD if rng.random() < 0.2 else ODD[:-2]
    lines = []
    for _ in range(rng.randrange(1, 8)):
        count = columns if rng.random() < 0.97 else rng.randrange(4)
        lines.append(separator.join(rng.choice(odd) for _ in range(count)))
    end = "\n" if rng.random() < 0.7 else ""
    return "\n".join(lines) + end


@pytest.mark.parametrize("relation", ["one", "two"])
def test_csv_is_read_as_spark_reads_it(spark: Any, tmp_path: Path, relation: str) -> None:
    rng = seeded("csv is read as spark reads it")
    names = {"one": ["x"], "two": ["x", "y"]}[relation]
    seen = 0
    for number in range(25):
        folder = tmp_path / str(number)
        folder.mkdir()
        separator = rng.choice([",", ",", "\t", ";"])
        header = rng.random() < 0.5
        mode = rng.choice(["append", "changes"])
        options = {"header": "true"} if header else {}
        if separator != ",":
            options["sep"] = separator
        all_names = ["op", *names] if mode == "changes" else list(names)
        for file in range(rng.randrange(1, 3)):
            text = some_csv(rng, len(all_names), separator)
            if header:
                first = list(all_names)
                rng.shuffle(first)
                text = separator.join(first) + "\n" + text
            (folder / f"f {file}%41.csv").write_text(text, encoding="utf-8")
        here, there = by_both(spark, source(folder, relation, "csv", mode=mode, options=options))
        assert here == there, [path.read_bytes() for path in folder.iterdir()]
        seen += here is not None
    assert seen  # not all of them are left to Spark


@pytest.mark.parametrize(
    "bad",
    [b'a,"b\nc"\n', b"1,a\\\n", b"1,a\r\n2,b\r\n", b"\xef\xbb\xbf1,a\n", b"1,\xff\n", b"1\n", b""],
)
def test_csv_that_is_not_plain_is_left_to_spark(spark: Any, tmp_path: Path, bad: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(bad)
    assert by_both(spark, source(tmp_path, "two", "csv")) == (None, None)


def test_options_are_left_to_spark(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,a\n")
    for options in ({"comment": "#"}, {"sep": "||"}, {"nullValue": "a"}):
        assert by_both(spark, source(tmp_path, "two", "csv", options=options)) == (None, None)
    here, _ = by_both(spark, source(tmp_path, "two", "csv", options={"sep": ","}))
    assert here is not None


def typed_table(**changed: pa.Array) -> pa.Table:
    columns = {
        "n": pa.array([1, None, -(2**63)]),
        "f": pa.array([1.5, float("nan"), None]),
        "s": pa.array(["a", None, ""]),
        "b": pa.array([True, False, None]),
        "d": pa.array([dt.date(2024, 2, 29), None, dt.date(1, 1, 1)]),
        "t": pa.array([dt.datetime(2024, 1, 1, 1, 2, 3, 4), None, None], pa.timestamp("us")),
        "m": pa.array([Decimal("1.25"), None, Decimal("-9999999.99")], pa.decimal128(9, 2)),
        "other": pa.array([[1], [], None]),
    }
    return pa.table(columns | changed)


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"n": pa.array([1, 2, None], pa.int8())},
        {"f": pa.array([1.5, None, 0.1], pa.float32())},
        {"f": pa.array([1, 2, None], pa.int16())},
        {"t": pa.array([0, 1, None], pa.timestamp("us", "UTC"))},
        {"t": pa.array([0, 2**41, -(2**40)], pa.timestamp("ms"))},
        {"t": pa.array([0, 2**62, None], pa.timestamp("us", "UTC"))},
        {"d": pa.array([0, 10**7, None], pa.int32()).cast(pa.date32())},
        {"m": pa.array([Decimal("1.5"), None, Decimal("2.125")], pa.decimal128(12, 3))},
        {"n": pa.array([Decimal("1.5"), None, Decimal("2")], pa.decimal128(12, 1))},
        {"s": pa.array(["7", "x", None])},
        {"n": pa.array(["7", "x", None])},
    ],
    ids=lambda changed: " ".join(f"{k}:{v.type}" for k, v in changed.items()) or "as declared",
)
def test_parquet_is_read_as_spark_reads_it(
    spark: Any, tmp_path: Path, changed: dict[str, pa.Array]
) -> None:
    pq.write_table(typed_table(**changed), tmp_path / "a.parquet")
    here, there = by_both(spark, source(tmp_path, "typed", "parquet"))
    assert here is not None
    assert str(here) == str(there)  # as NaN is not equal to itself


@pytest.mark.parametrize(
    "changed",
    [
        {"t": pa.array([0, 1, 2], pa.timestamp("ns"))},
        {"n": pa.array([1, 2, 3], pa.uint64())},
        {"s": pa.array([b"a", b"b", b"c"])},
        {"n": pa.array([1.5, 2.0, 3.0])},
    ],
    ids=lambda changed: " ".join(f"{k}:{v.type}" for k, v in changed.items()),
)
def test_types_that_spark_reads_in_its_own_way_are_left_to_it(
    spark: Any, tmp_path: Path, changed: dict[str, pa.Array]
) -> None:
    pq.write_table(typed_table(**changed), tmp_path / "a.parquet")
    polled = source(tmp_path, "typed", "parquet")
    assert polled._read_here(list_files(str(tmp_path), spark), spark) is None


JSON_VALUES: dict[str, list[str]] = {
    "n": ["7", "-0", "9223372036854775807", "0", "12"],
    "f": ["1.5", "3", "-0.0", "1e3", "0.1", "123456789012345678901234567890", "5e-324"],
    "s": ['"a"', '""', '"\\n\\t\\""', '"ü"', '"\\\\"', '"}{"', '"null"', '" b "'],
    "b": ["true", "false"],
    "d": ['"2024-02-29"', '"2024-13-01"', '"x"'],
    "t": ['"2024-01-01T01:02:03"', '"2024-01-01 01:02:03.000004"', '"no"'],
    "m": ['"1.25"', '"-9999999.99"', '"1.255"'],
}
ODD_JSON = ["null", "7.0", '"7"', "{}", "[1]", "1e400", "NaN", '"\\u00e9"', "9223372036854775808"]


def some_json(rng: Random) -> str:
    lines = []
    for _ in range(rng.randrange(1, 6)):
        values = {name: rng.choice(choices) for name, choices in JSON_VALUES.items()}
        if rng.random() < 0.05:
            values[rng.choice(list(values))] = rng.choice(ODD_JSON)
        if rng.random() < 0.05:
            del values[rng.choice(list(values))]
        if rng.random() < 0.3:
            values["other"] = rng.choice(["1", '{"n": 3}', '[{"n": 1}]', "null"])
        names = list(values)
        rng.shuffle(names)
        space = rng.choice(["", " "])
        lines.append("{" + f",{space}".join(f'"{n}":{space}{values[n]}' for n in names) + "}")
    return "\n".join(lines) + rng.choice(["\n", "", "\n" if rng.random() < 0.9 else "\n\n"])


def test_json_is_read_as_spark_reads_it(spark: Any, tmp_path: Path) -> None:
    rng = seeded("json is read as spark reads it")
    seen = 0
    for number in range(20):
        folder = tmp_path / str(number)
        folder.mkdir()
        for file in range(rng.randrange(1, 3)):
            (folder / f"{file}.json").write_text(some_json(rng), encoding="utf-8")
        here, there = by_both(spark, source(folder, "typed", "json"))
        assert str(here) == str(there), [path.read_bytes() for path in folder.iterdir()]
        seen += here is not None
    assert seen  # not all of them are left to Spark


@pytest.mark.parametrize(
    "bad",
    [
        b'{"x": 1, "y": "a"} {"x": 2, "y": "b"}\n\n',
        b'{"x": 1,\n"y": "a"}\n',
        b'{"x": 1, "y": "a"}{"x": 1,\n"y": "a"}\n',
        b'[{"x": 1, "y": "a"}]',
        b'{"x": 1, "y": "a", "y": "b"}\n',
        b'{"x": 1, "y": "\xff"}\n',
        b'{"x": 1, "y": "\\u0041"}\n',
        b'{"x": 1, "y": null}\n',
        b'{"x": 1}\n',
        b'{"x": "1", "y": "a"}\n',
        b'{"x": 1, "y": 2}\n',
        b'{"x": 1, "y": "a"}\r\n',
        b"{'x': 1, 'y': 'a'}\n",
        b'{"x": 1, "y": "a"',
    ],
)
def test_json_that_is_not_plain_is_left_to_spark(spark: Any, tmp_path: Path, bad: bytes) -> None:
    (tmp_path / "a.json").write_bytes(bad)
    assert by_both(spark, source(tmp_path, "two", "json")) == (None, None)
