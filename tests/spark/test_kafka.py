"""Kafka with a real broker: partitions, values, bounded reads, and messages that are gone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.seeds import seeded
from tests.spark.piping import PLACEMENTS
from tests.spark.streaming import rows, taken
from tests.spark.upserted import KEYS, PROGRAM, Model, cut, some_events
from tidelog.bench.kafka_broker import Broker, send_frame
from tidelog.errors import UsageError
from tidelog.spark import Pipeline, Source, source_kafka
from tidelog.spark.source_order import FILE, START, TIME

pytestmark = pytest.mark.sampled(3)

SCHEMA = "`a` STRING, `b` STRING"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "a", "type": "long"},
            {"name": "b", "type": ["null", "string"], "default": None},
        ],
    }
)


def _stream(spark: Any, kafka: Broker, topic: str, schema: str = SCHEMA, **keys: Any) -> Any:
    options = {"kafka.bootstrap.servers": kafka.servers, **keys.pop("options", {})}
    return source_kafka.stream(spark, options, topic, schema=schema, **keys)


def test_partitions_with_an_empty_one_and_one_added_later(
    spark: Any, kafka: Broker, tmp_path: Path
) -> None:
    kafka.create("parts", 3)
    kafka.send("parts", ['{"a": 1}', '{"a": 2}'], partition=0)
    kafka.send("parts", ['{"a": 3}'], partition=2)
    frame = _stream(spark, kafka, "parts").select("a", f"`{FILE}`", f"`{START}`")
    first = [("1", "parts:0", 0), ("2", "parts:0", 1), ("3", "parts:2", 0)]
    assert rows(frame, tmp_path) == first
    kafka.add_partitions("parts", 4)
    kafka.send("parts", ['{"a": 4}'], partition=3)
    kafka.send("parts", ['{"a": 5}'], partition=1)
    assert rows(frame, tmp_path) == [("5", "parts:1", 0), ("4", "parts:3", 0)]
    assert rows(frame, tmp_path) == []


def test_json_values(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    kafka.create("json", 1)
    bad = ["[{}]", "null", "", '{"a": 1']
    kafka.send("json", ['{"a": 1, "b": "x"}', None, ' {"a": [1,2]}', *bad])
    frame = _stream(spark, kafka, "json")
    assert frame.columns == ["a", "b", "_corrupt_record", TIME, FILE, START]
    assert rows(frame, tmp_path) == [
        ("1", "x", None, None, "json:0", 0),
        ("[1,2]", None, None, None, "json:0", 2),
        *((None, None, text, None, "json:0", i) for i, text in enumerate(bad, start=3)),
    ]


def test_avro_values(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    record = b"\x02\x02\x02x"  # a = 1, b = "x"
    kafka.create("avro", 1)
    kafka.send("avro", [record, b"\xff\xff", None, b"\x04\x00"])
    plain = rows(_stream(spark, kafka, "avro", AVRO, value="avro"), tmp_path / "plain")
    assert [row[:3] for row in plain] == [(1, "x", None), (None, None, "//8="), (2, None, None)]
    kafka.create("confluent", 1)
    kafka.send("confluent", [b"\0\0\0\0\7" + record, b"\1\0\0\0\7" + record, b"\0"])
    framed = _stream(spark, kafka, "confluent", AVRO, value="confluent-avro")
    found = [row[:3] for row in rows(framed, tmp_path / "confluent")]
    assert found == [(1, "x", None), (None, None, "AQAAAAcCAgJ4"), (None, None, "AA==")]


def test_a_first_read_in_steps(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    kafka.create("steps", 2)
    send_frame(spark.range(1000).selectExpr("id as a"), kafka, "steps")
    limit = {"maxOffsetsPerTrigger": "400"}
    batches = taken(_stream(spark, kafka, "steps", options=limit).select("a"), tmp_path)
    assert len(batches) >= 3
    assert sorted(int(row[0]) for batch in batches for row in batch) == list(range(1000))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_upserts(spark: Any, kafka: Broker, tmp_path: Path, placement: str) -> None:
    """The newest row of a key counts, whatever its partition and its place there."""
    rng = seeded("upserts over kafka", placement)
    topic = f"upserts-{placement}"
    kafka.create(topic, 3)
    source = Source(
        "item", "kafka", topic, mode="upsert", keys=KEYS, sequence="at", delete_when="gone",
        schema="k long, v long, name string, at long, w double, gone boolean",
        options={"kafka.bootstrap.servers": kafka.servers},
    )  # fmt: skip
    model = Model(with_sequence=True)
    at = 0
    for part in cut(rng, some_events(rng, 60))[:3]:
        for made in part:
            at += 1  # different in all partitions, among which there is no order
            event = replace(made, at=at)
            row = event.row() or (event.key[0], None, event.key[1], event.at, None)
            message = dict(zip(("k", "v", "name", "at", "w"), row, strict=True))
            text = json.dumps(message | {"gone": event.values is None})
            kafka.send(topic, [text], partition=rng.randrange(3))
            model.take(event)
        with Pipeline(
            PROGRAM, state=tmp_path / "state", sources=[source], **PLACEMENTS[placement]
        ) as pipeline:
            pipeline.run(spark)
            found = {tuple(row.values()) for row in pipeline.table("item").to_pylist()}
            assert pipeline.totals().quarantined == 0
        assert found == model.rows()


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("topics", [1, 2])
def test_the_place_of_a_bad_message_is_told(
    spark: Any, kafka: Broker, tmp_path: Path, placement: str, topics: int
) -> None:
    names = [f"bad-{placement}-{topics}-{i}" for i in range(topics)]
    for name in names:
        kafka.create(name, 2)
        kafka.send(name, ['{"x": 1}', '{"x": null}'], partition=0)
        kafka.send(name, ['{"x": 2}', '{"x": 1.5}', "[3]"], partition=1)
    source = Source(
        "item", "kafka", ",".join(names), options={"kafka.bootstrap.servers": kafka.servers}
    )
    with Pipeline(
        ".decl item(x: number)", state=tmp_path / "state", sources=[source],
        **PLACEMENTS[placement],
    ) as pipeline:  # fmt: skip
        pipeline.run(spark)
        assert pipeline.table("item")["x"].to_pylist() in ([1, 2], [2, 1])
    files = sorted((tmp_path / "state" / "quarantine").rglob("*.jsonl"))
    bad = [json.loads(line)["file"] for file in files for line in file.read_text().splitlines()]
    assert sorted(bad) == sorted(f"{name}:{part}" for name in names for part in (0, 1, 1))


def test_messages_that_are_gone_are_an_error(spark: Any, kafka: Broker, tmp_path: Path) -> None:
    kafka.create("gone", 1)
    kafka.send("gone", ['{"a": 1}'])
    assert len(rows(_stream(spark, kafka, "gone"), tmp_path)) == 1
    kafka.send("gone", ['{"a": 2}', '{"a": 3}'])
    kafka.trim("gone", 0, 2)
    with pytest.raises(Exception, match="Some data may have been lost"):
        rows(_stream(spark, kafka, "gone"), tmp_path)
    lenient = _stream(spark, kafka, "gone", options={"failOnDataLoss": "false"})
    assert [row[0] for row in rows(lenient, tmp_path)] == ["3"]


def test_the_topic_is_named_once() -> None:
    with pytest.raises(UsageError, match="names of its topics"):
        source_kafka.stream(None, {}, "", schema=SCHEMA)
    with pytest.raises(UsageError, match="names of its topics"):
        source_kafka.stream(None, {"subscribe": "x"}, "x", schema=SCHEMA)
