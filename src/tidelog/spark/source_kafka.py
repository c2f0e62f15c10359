"""Messages of Kafka topics as rows: JSON or Avro values, in the order of their partitions.

The rows have the columns of the value, `_corrupt_record` with a value that cannot be read, and the
columns of the order (source_order.py): topic:partition, and the offset. Kafka's timestamps are not
part of the order. They come from producers, and may run backwards in a partition. Messages without
a value (tombstones) are skipped.

Spark finds partitions that are added later, and reads them from their beginning. A first read
starts at the earliest message, and ends at what is there at the start if the trigger is
`availableNow`. Messages that Kafka deleted before they were read are an error, unless the option
`failOnDataLoss` is false.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelog.errors import UsageError
from tidelog.spark.envelopes import CORRUPT
from tidelog.spark.source_order import ordered
from tidelog.spark.typed_json import parsed

VALUES = ("json", "avro", "confluent-avro")
_NAMES = ("subscribe", "subscribePattern", "assign")
_VALUE, _ROW, _PLACE, _OFFSET = "tidelog value", "tidelog row", "tidelog place", "tidelog offset"


def stream(
    spark: Any,
    options: Mapping[str, str],
    path_or_table: str = "",
    *,
    schema: str,
    value: str = "json",
    typed: str = "",
) -> Any:
    """Return the messages of topics as a streaming frame.

    `path_or_table` has the names of topics, with commas, unless the options name them. `schema` is
    the schema of a value: DDL for JSON, Avro's own JSON for Avro. `confluent-avro` is Avro after
    the five bytes with which Confluent's serializers begin. `typed` is the schema of JSON with the
    declared types, if these may be tried first (typed_json.py).
    """
    chosen = _chosen(options, path_or_table)
    frame = spark.readStream.format("kafka").options(**chosen).load()
    return decoded(frame, schema, value, typed)


def _chosen(options: Mapping[str, str], topics: str) -> dict[str, str]:
    """Return the options for the connector; the first read begins at the earliest message."""
    named = [name for name in _NAMES if name in options]
    if bool(topics) == bool(named):
        raise UsageError(
            "a source of format `kafka` needs the names of its topics, once"
            f'\n  help: path = "payments", or one of the options {", ".join(_NAMES)}'
        )
    chosen = {"startingOffsets": "earliest", **options}  # offsets by timestamp win over these
    if topics:
        chosen["subscribe"] = topics
    return chosen


def decoded(frame: Any, schema: str, value: str = "json", typed: str = "") -> Any:
    """Return messages, with the columns of Kafka's connector, as rows."""
    from pyspark.sql import functions as F

    if value not in VALUES:
        raise UsageError(f"`value` must be one of {', '.join(VALUES)}, not {value!r}")
    place = F.concat_ws(":", F.col("topic"), F.col("partition").cast("string"))
    rows = frame.where("value is not null").select(
        F.col("value").alias(_VALUE), place.alias(_PLACE), F.col("offset").alias(_OFFSET)
    )
    if typed:
        text = F.col(f"`{_VALUE}`").cast("string")
        rows = parsed(rows.withColumn(_VALUE, text), _VALUE, schema, typed)
    else:
        rows = _json(rows, schema) if value == "json" else _avro(rows, schema, value != "avro")
    rows = ordered(rows, file=F.col(f"`{_PLACE}`"), start=F.col(f"`{_OFFSET}`"))
    return rows.drop(_PLACE, _OFFSET)


def _json(rows: Any, schema: str) -> Any:
    """Return the columns of JSON values. A value that is no object is corrupt."""
    from pyspark.sql import functions as F

    if CORRUPT not in schema:
        schema = f"{schema}, {CORRUPT} STRING"
    text = F.col(f"`{_VALUE}`").cast("string")
    row = F.from_json(text, schema, {"columnNameOfCorruptRecord": CORRUPT})
    rows = rows.withColumn(_ROW, row).withColumn(_VALUE, text)
    # `null`, nothing and an array are JSON, but no rows.
    whole = F.startswith(F.col(f"`{_VALUE}`"), F.lit("{")) | F.col(f"`{_VALUE}`").rlike(r"^\s*\{")
    kept = rows.select(
        f"`{_ROW}`.*", f"`{_PLACE}`", f"`{_OFFSET}`", whole.alias(_ROW), f"`{_VALUE}`"
    )
    bad = F.when(~F.col(f"`{_ROW}`"), F.col(f"`{_VALUE}`")).otherwise(F.col(CORRUPT))
    return kept.withColumn(CORRUPT, bad).drop(_ROW, _VALUE)


def _avro(rows: Any, schema: str, header: bool) -> Any:
    """Return the columns of Avro values; a corrupt one is given in base 64.

    For a value that it cannot read, Spark gives a row of nulls.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import from_avro

    data = F.col(f"`{_VALUE}`")
    body = F.expr(f"substring(`{_VALUE}`, 6)") if header else data
    rows = rows.withColumn(_ROW, from_avro(body, schema, {"mode": "PERMISSIVE"}))
    row = F.col(f"`{_ROW}`")
    kind = rows.schema[_ROW].dataType
    if kind.typeName() != "struct":
        raise UsageError("the Avro schema of a source must be a record")
    good = F.lit(False)
    for column in kind.fieldNames():
        good = good | row.getField(column).isNotNull()
    if header:
        good = good & (F.hex(F.expr(f"substring(`{_VALUE}`, 1, 1)")) == "00")
    bad = F.when(good, F.lit(None)).otherwise(F.base64(data))
    fields = [F.when(good, row.getField(c)).alias(c) for c in kind.fieldNames()]
    return rows.select(*fields, bad.alias(CORRUPT), f"`{_PLACE}`", f"`{_OFFSET}`")
