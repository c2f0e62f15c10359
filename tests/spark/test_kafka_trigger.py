"""A trigger that sends what it selects to a topic of a real broker, in both placements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark.piping import PLACEMENTS, PROGRAM, Folder
from tidelog.bench.kafka_broker import Broker
from tidelog.spark import Pipeline, Trigger

pytestmark = pytest.mark.sampled(1)

EPOCHS = ["+,1,2\n+,2,3\n", "-,2,3\n+,2,4\n", "+,9,9\n"]


def sent(spark: Any, kafka: Broker, topic: str) -> list[tuple[Any, ...]]:
    """Return the messages of a topic: epoch, operation, row."""
    frame = spark.read.format("kafka").options(**kafka.options(topic)).load()
    rows = frame.selectExpr("string(key) AS key", "string(value) AS value").collect()
    found = []
    for key, value in rows:
        change, row = json.loads(value), json.loads(key)
        assert {name: change[name] for name in row} == row
        found.append((change["epoch"], change["op"], row["x"], row["y"]))
    return sorted(found)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_events_as_messages(spark: Any, kafka: Broker, tmp_path: Path, placement: str) -> None:
    folder = Folder(tmp_path)
    topics = {name: f"{name}-{placement}" for name in ("far", "gone")}
    for topic in topics.values():
        kafka.create(topic, 2)
    servers = {"kafka.bootstrap.servers": kafka.servers}
    triggers = [
        Trigger(
            "reach",
            on,
            where,
            format="kafka",
            options={**servers, "topic": topics[name]},
            name=name,
        )
        for name, on, where in (("far", "+", "y > 3"), ("gone", "both", "x = 1"))
    ]

    def run() -> None:
        source = folder.source("edge", "csv", mode="changes")
        with Pipeline(
            PROGRAM, state=tmp_path / "state", sources=[source], triggers=triggers,
            **PLACEMENTS[placement],
        ) as pipeline:  # fmt: skip
            pipeline.run(spark)

    for number, text in enumerate(EPOCHS):
        folder.write(f"edge/{number}.csv", text)
        run()
    far = [(1, "+", 1, 4), (1, "+", 2, 4), (2, "+", 9, 9)]
    assert sent(spark, kafka, topics["far"]) == far
    gone = [(0, "+", 1, 2), (0, "+", 1, 3), (1, "+", 1, 4), (1, "-", 1, 3)]
    assert sent(spark, kafka, topics["gone"]) == gone
    # As if the process had died before it could note what it has sent: the last epoch is repeated.
    memory = tmp_path / "state" / "sinks" / "far.json"
    memory.write_text(json.dumps({**json.loads(memory.read_text()), "epoch": 1}))
    run()
    assert sent(spark, kafka, topics["far"]) == [*far, (2, "+", 9, 9)]
    assert sent(spark, kafka, topics["gone"]) == gone
