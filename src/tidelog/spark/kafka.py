"""Kafka topics, by batch reads: from the offsets that were committed to the end of now.

The connector is a jar: `spark.jars.packages = "org.apache.spark:spark-sql-kafka-0-10_2.13:<version
of Spark>"` among the settings of the session. Values are texts of JSON, one row or one envelope
each; a message without a value, as Kafka keeps for deleted keys, is passed over.

    item               mark
    topic:partition    the offset of the next message
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from tidelog.errors import DataError, UsageError
from tidelog.spark.conversion import Reading
from tidelog.spark.envelopes import CORRUPT, encode, text_schema
from tidelog.spark.sources import Batch, Part, PolledSource, first_line

_MODES = ("append", "changes", "debezium")


class KafkaSource(PolledSource):
    """Topics that are followed by their offsets."""

    def _reading(self) -> Reading:
        unit = self.spec.time_unit if self.spec.mode == "debezium" else ""
        return Reading(json_text=True, time_unit=unit)

    def poll(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        """Return the messages since the offsets; how far they go is known when they are read."""
        if self.spec.mode not in _MODES:
            raise UsageError(
                f"source `{self.name}`: the mode of a Kafka topic is {', '.join(_MODES)}"
            )
        options = {**self.spec.options, "startingOffsets": starting(offsets)}
        try:
            frame = spark.read.format("kafka").options(**options).load()
        except Exception as error:
            raise DataError(
                f"source `{self.name}`: Spark cannot read from Kafka: {first_line(error)}"
                "\n  help: the connector is org.apache.spark:spark-sql-kafka-0-10_2.13, of Spark's"
                " version, in `spark.jars.packages`"
            ) from None
        return Batch([Part(frame=self.decoded(frame))], {}, marks_of=next_offsets)

    def decoded(self, frame: Any) -> Any:
        """Return messages, with the columns that Kafka's connector gives, in the common shape."""
        from pyspark.sql import functions as F

        schema = text_schema(self.shape, self.spec.mode)
        options = {"columnNameOfCorruptRecord": CORRUPT}
        value = F.from_json(F.col("value").cast("string"), schema, options)
        place = F.concat_ws(":", F.col("topic"), F.col("partition").cast("string"))
        rows = frame.where("value is not null").select(
            value.alias("_row"), place.alias("_place"), F.col("offset").alias("_offset")
        )
        rows = rows.select("_row.*", "_place", "_offset")
        places = [F.col("_place").alias("file"), F.lit(0).cast("long").alias("start")]
        return encode(
            rows,
            self.shape,
            self.spec.mode,
            places=[*places, F.col("_offset").alias("id")],
        )


def starting(offsets: Mapping[str, str]) -> str:
    """Return where to begin, as Kafka's connector is told it.

    >>> starting({"bids:0": "17", "bids:1": "4"})
    '{"bids": {"0": 17, "1": 4}}'
    """
    topics: dict[str, dict[str, int]] = {}
    for item, mark in offsets.items():
        topic, _, partition = item.rpartition(":")
        topics.setdefault(topic, {})[partition] = int(mark)
    return json.dumps(topics) if topics else "earliest"


def next_offsets(tables: Sequence[pa.Table]) -> dict[str, str]:
    """Return where the next batch begins, after the messages of this one."""
    marks: dict[str, str] = {}
    for table in tables:
        last = table.select(["file", "id"]).group_by("file").aggregate([("id", "max")])
        for row in last.to_pylist():
            marks[row["file"]] = str(row["id_max"] + 1)
    return marks
