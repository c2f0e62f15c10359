"""Kafka topics, and tables of Delta and Iceberg, as sources.

    format    stream                          polled
    kafka     append, changes, upsert,        -
              debezium
    delta     append, delta-changes           snapshot, if the table has a new version
    iceberg   append                          changes and snapshot, if there is a new snapshot

What each connector reads, and in which order rows apply, is in source_kafka.py, source_delta.py and
source_iceberg.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from tidelog.errors import DataError, TidelogError, UsageError
from tidelog.io.conversion import ConversionOptions
from tidelog.io.tabular import Records
from tidelog.logic.program import Relation
from tidelog.spark import source_delta, source_iceberg, source_kafka
from tidelog.spark.declared import Source
from tidelog.spark.envelopes import text_schema
from tidelog.spark.jobs import reason
from tidelog.spark.retries import outage
from tidelog.spark.sources import Batch, PipelineSource
from tidelog.spark.typed_json import typed_schema


class ConnectorSource(PipelineSource, ABC):
    """A source that a connector reads; each format has modes of its own."""

    streamed: tuple[str, ...] = ()
    polled: tuple[str, ...] = ()

    def __init__(self, spec: Source, name: str, relation: Relation, records: Records) -> None:
        if spec.mode not in (*self.streamed, *self.polled):
            raise UsageError(
                f"source `{name}`: the mode of a source of format `{spec.format}` is one of"
                f" {', '.join((*self.streamed, *self.polled))}, not `{spec.mode}`"
            )
        super().__init__(spec, name, relation, records)
        self.is_stream = spec.mode in self.streamed

    @property
    def where(self) -> str:
        """The path of a table, or its name in a catalog."""
        return self.spec.table or self.spec.path

    def stream(self, spark: Any) -> Any:
        """Return the streaming frame in the common shape."""
        try:
            frame = self._stream(spark)
        except TidelogError:
            raise
        except Exception as error:  # Spark's own, of either kind of session
            raise self._unreadable(error) from None
        return self.shaped(frame, where=self.where).frame

    @abstractmethod
    def _stream(self, spark: Any) -> Any:
        """Return the streaming frame as the connector has it, with the columns of the order."""

    def _unreadable(self, error: Exception) -> DataError:
        what = reason(error, self.spec.options)
        return outage(f"source `{self.name}`: Spark cannot read `{self.where}`: {what}", error)


class KafkaSource(ConnectorSource):
    """Topics of Kafka."""

    streamed = ("append", "changes", "upsert", "debezium")

    def _conversion(self) -> ConversionOptions:
        unit = self.spec.time_unit if self.spec.mode == "debezium" else ""
        return ConversionOptions(json_text=self.spec.value == "json", time_unit=unit)

    def _stream(self, spark: Any) -> Any:
        schema = self.spec.schema
        if not schema and self.spec.value != "json":
            raise UsageError(
                f"source `{self.name}`: Avro values need their schema"
                '\n  help: schema = \'{"type": "record", ..}\''
            )
        if not schema and self.spec.select:
            raise UsageError(
                f"source `{self.name}`: `select` needs the columns of a message"
                '\n  help: state them: schema = "id long, at timestamp"'
            )
        typed = ""
        if not schema:
            schema = text_schema(self.shape, self.spec.mode)
            typed = typed_schema(self.shape, self.relation, self.spec.mode)
        return source_kafka.stream(
            spark, self.spec.options, self.spec.path, schema=schema, value=self.spec.value,
            typed=typed,
        )  # fmt: skip


class DeltaSource(ConnectorSource):
    """A Delta table."""

    streamed = ("append", "delta-changes")
    polled = ("snapshot",)

    def _stream(self, spark: Any) -> Any:
        return source_delta.stream(spark, self.spec.options, self.where, mode=self.spec.mode)

    def _polled(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        try:
            version = str(source_delta.version(spark, self.where))
            if offsets.get("version") == version:
                return None
            options = {**self.spec.options, "versionAsOf": version}
            frame = source_delta.batch(spark, options, self.where)
        except Exception as error:
            raise self._unreadable(error) from None
        return Batch([self.shaped(frame, where=self.where)], {"version": version})


class IcebergSource(ConnectorSource):
    """An Iceberg table."""

    streamed = ("append",)
    polled = ("changes", "snapshot")

    def _stream(self, spark: Any) -> Any:
        return source_iceberg.stream(spark, self.spec.options, self.where)

    def _polled(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        try:
            now = source_iceberg.current_snapshot(spark, self.where)
            before = offsets.get("snapshot")
            if now is None or before == str(now):
                return None
            frame = self._read(spark, None if before is None else int(before), now)
        except TidelogError:
            raise
        except Exception as error:
            raise self._unreadable(error) from None
        return Batch([self.shaped(frame, where=self.where)], {"snapshot": str(now)})

    def _read(self, spark: Any, before: int | None, now: int) -> Any:
        if self.spec.mode == "snapshot":
            return source_iceberg.batch(spark, self.spec.options, self.where, snapshot=now)
        if before is not None:
            source_iceberg.require_follows(spark, self.where, before)
        return source_iceberg.changes(spark, self.spec.options, self.where, after=before, until=now)


CONNECTED: Mapping[str, type[ConnectorSource]] = {
    "kafka": KafkaSource,
    "delta": DeltaSource,
    "iceberg": IcebergSource,
}
