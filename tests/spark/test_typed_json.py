"""JSON values parsed with the declared types give what the same values as texts give."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tests.samples import sample
from tests.seeds import seeded
from tidelog.io.conversion import ConversionOptions
from tidelog.logic.program import Program
from tidelog.spark.checking import BadRow, Checked, Checker
from tidelog.spark.declared import Source
from tidelog.spark.envelopes import AGAIN, encode, shape_of, text_schema
from tidelog.spark.frames import to_frame
from tidelog.spark.source_kafka import decoded
from tidelog.spark.source_order import FILE, START
from tidelog.spark.typed_json import typed_schema

PROGRAM = Program.parse(".decl p(a: number, b: float, c: symbol, d: bool, e: unsigned)", "p.dl")
RELATION = PROGRAM.relations["p"]
COLUMNS = [column.name for column in RELATION.columns]

# Texts of values as they stand in a message.
PLAIN = ("0", "17", "-3", "-0", "9223372036854775807", "1", "-9223372036854775808")
ODD = (
    "null", "true", "false", '"17"', '""', '" 17"', '"+5"', '"x"', '"1.5"', "1.5", "1.50", "1e3",
    "-0.0", "0.1", "1e999", "-1e999", "1e-400", "NaN", "Infinity", '"NaN"', '"Infinity"', "007",
    "9223372036854775808", "18446744073709551615", "1e18", "12345678901234567890123456789012345",
    "0.1234567890123456789012345678901", "[1,2]", '{"x":1}', '"true"', '"0x10"', "'7'", '"\\u0031"',
    "1.7976931348623157e308", "1.7976931348623159e308", "4.9e-324", "tru", "+1", ".5",
)  # fmt: skip
WHOLE = (
    "", "null", "17", "[]", "{}", "{", '"x"', "[1,2]", "  ", "\n", "{} {}", "not json",
    '[{"a":1}]', "[{}]",
)  # fmt: skip


def some_message(rng: Random) -> str | None:
    """Return a message: mostly one that fits, or one that may do so."""
    if rng.random() < 0.03:
        return rng.choice((*WHOLE, None))
    odd = rng.random() < 0.3
    fields = []
    for name in COLUMNS:
        value = rng.choice(PLAIN)
        if name == "c":
            value = json.dumps(f"text {rng.randrange(9)}")
        elif name == "d":
            value = rng.choice(("true", "false"))
        elif name == "e":
            value = str(rng.randrange(99))
        if odd and rng.random() < 0.3:
            value = rng.choice(ODD)
        fields.append((name, value))
    if odd and rng.random() < 0.3:
        fields.append((rng.choice([*COLUMNS, "A", "other"]), rng.choice(ODD)))
    if odd and rng.random() < 0.3:
        del fields[rng.randrange(len(fields))]
    rng.shuffle(fields)
    fields.append(("op", json.dumps(rng.choice("+-")) if rng.random() < 0.9 else rng.choice(ODD)))
    text = ", ".join(f'"{name}": {value}' for name, value in fields)
    return rng.choice(("", "", "", " ", "\n")) + "{" + text + rng.choice(("}", "}", "}", "} ", ""))


def checked(spark: Any, messages: list[str | None], mode: str, *, typed: bool) -> Checked:
    """Check messages, in a table of all of them."""
    source = Source("p", "kafka", "t", mode=mode)
    shape = shape_of(source, RELATION)
    table = pa.table({
        "value": pa.array([m if m is None else m.encode() for m in messages], pa.binary()),
        "topic": pa.array(["t"] * len(messages)),
        "partition": pa.array([0] * len(messages), pa.int32()),
        "offset": pa.array(range(len(messages)), pa.int64()),
    })  # fmt: skip
    frame = to_frame(spark, table).coalesce(1)
    types = typed_schema(shape, RELATION, mode) if typed else ""
    rows = decoded(frame, text_schema(shape, mode), "json", types)
    assert (AGAIN in rows.columns) == typed
    places = [rows[f"`{FILE}`"].alias("place"), rows[f"`{START}`"].alias("start")]
    options = ConversionOptions(json_text=True)
    checker = Checker(RELATION, PROGRAM.records, mode, shape, options)
    return checker.check(encode(rows, shape, mode, places=places).toArrow())


def said(bad: BadRow) -> tuple[str, str, str]:
    """Return a row of the quarantine. A number that fits may be written in another way."""
    row = bad.row
    if isinstance(row, dict):
        row = {name: _value(name, value) for name, value in row.items()}
    return bad.reason, repr(row), bad.file


def _value(name: str, value: Any) -> Any:
    try:
        return {"a": int, "b": float}[name](value)
    except (KeyError, TypeError, ValueError):
        return value


@pytest.mark.parametrize("mode", ["append", "changes"])
def test_types_change_nothing(spark: Any, mode: str) -> None:
    rng = seeded("typed json", mode)
    good = bad = 0
    for size in sample((40, 400), (40, 400, 4000, 4000, 4000)):
        messages = [some_message(rng) for _ in range(size)]
        texts = checked(spark, messages, mode, typed=False)
        types = checked(spark, messages, mode, typed=True)
        assert types.received == texts.received
        assert list(map(repr, types.rows)) == list(map(repr, texts.rows))
        assert (types.inserted is None) == (texts.inserted is None)
        if types.inserted is not None and texts.inserted is not None:
            assert types.inserted.tolist() == texts.inserted.tolist()
        assert list(map(said, types.bad)) == list(map(said, texts.bad))
        good, bad = good + len(types.rows), bad + len(types.bad)
    assert min(good, bad) > 20


def test_rows_that_fit_are_not_parsed_again(spark: Any) -> None:
    row = '{"a": 1, "b": 2.5, "c": "x", "d": true, "e": 3, "op": "+"}'
    found = checked(spark, [row] * 3, "append", typed=True)
    assert list(found.rows) == [(1, 2.5, "x", True, 3)] * 3
    assert not found.bad


def test_where_types_are_not_tried() -> None:
    numbers = Program.parse(".decl q(a: number, b: symbol)  .decl r(b: symbol)", "q.dl").relations
    shape = shape_of(Source("q", "kafka", "t"), numbers["q"])
    assert typed_schema(shape, numbers["q"], "append").startswith("`a` BIGINT, `b` STRING")
    assert not typed_schema(shape, numbers["q"], "upsert")
    replaced = shape_of(Source("q", "kafka", "t", nulls={"a": "0"}), numbers["q"])
    assert not typed_schema(replaced, numbers["q"], "append")
    texts = shape_of(Source("r", "kafka", "t"), numbers["r"])
    assert not typed_schema(texts, numbers["r"], "append")
