"""Sources: where the rows of an epoch come from.

A source is one of two kinds. A *stream* is a streaming DataFrame: Spark finds what is new, and
remembers it in the checkpoint of the query (stream.py). What has no stream, such as a JDBC table or
a snapshot, is *polled*: Spark reads it as a batch within an epoch, on a schedule of its own.

Both give rows in one common shape (envelopes.py), as parts that one Spark job reads together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.errors import DataError, TidelogError, UsageError, did_you_mean
from tidelog.io.conversion import ConversionOptions
from tidelog.io.tabular import Records
from tidelog.logic.program import Relation
from tidelog.sharding.key_relations import Upsert
from tidelog.spark.checking import Checker, check_schema, schema_error
from tidelog.spark.connectors import with_driver
from tidelog.spark.declared import SOURCE_FORMATS, Source, seconds_of
from tidelog.spark.envelopes import (
    AT,
    DELETING,
    ORDERED,
    Shape,
    encode,
    file_places,
    quoted,
    shape_of,
)
from tidelog.spark.jobs import condition_of, reason
from tidelog.spark.listing import File
from tidelog.spark.retries import outage
from tidelog.spark.source_order import FILE, START


@dataclass
class Part:
    """Rows of one schema: a frame for Spark to compute, or a table that was read already.

    A part with neither is in the stream of its source.
    """

    frame: Any = None
    table: Any = None
    drift: str = ""
    """Why no row fits, if the schema has changed."""


@dataclass
class Batch:
    """What a source has for an epoch."""

    parts: list[Part]
    offsets: Mapping[str, str]
    """Offsets to commit, by item."""
    files: Sequence[File] = ()
    """The files with the rows, in the order in which they apply."""
    oldest: float | None = None
    """The time of the oldest item, in seconds since 1970; None if unknown."""


class PipelineSource:
    """A declared source that is ready to be read."""

    is_stream = False
    """Whether the source has a stream; else it is polled."""

    def __init__(self, spec: Source, name: str, relation: Relation, records: Records) -> None:
        self.spec, self.name, self.relation = spec, name, relation
        self.shape: Shape = shape_of(spec, relation)
        self.conversion = self._conversion()
        self.checker = Checker(relation, records, spec.mode, self.shape, self.conversion)
        self.started = False
        """Whether an epoch with rows of this source is committed."""
        self._polled_at: float | None = None

    def _conversion(self) -> ConversionOptions:
        unit = self.spec.time_unit if self.spec.mode == "debezium" else ""
        return ConversionOptions(time_unit=unit)

    # --- streams ---

    def stream(self, spark: Any) -> Any:
        """Return the streaming frame of this source in the common shape."""
        raise UsageError(f"source `{self.name}` has no stream")

    def arrived(self, spark: Any, addresses: Sequence[str]) -> Batch:
        """Return what a micro-batch has of this source, given the addresses of its files."""
        return Batch([Part()], {})

    def apart(self, spark: Any, batch: Batch) -> Batch:
        """Return the same rows, read as batches instead of by the stream, if that can be done."""
        return batch

    # --- polling ---

    def is_due(self) -> bool:
        """Return whether it is time to poll."""
        every = seconds_of(self.spec.every)
        return self._polled_at is None or time.monotonic() >= self._polled_at + every

    def poll(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        """Return what is new since the offsets; None if nothing is."""
        self._polled_at = time.monotonic()
        return self._polled(spark, offsets)

    def missed(self) -> None:
        """Make the source due: what it gave was not committed."""
        self._polled_at = None

    def _polled(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        raise UsageError(f"source `{self.name}` is a stream and cannot be polled")

    # --- frames ---

    def shaped(self, frame: Any, *, files: bool = False, where: str = "") -> Part:
        """Return a frame in the common shape.

        A schema that does not fit is an error before the first row, and schema drift afterwards.
        """
        # Before `select`: it drops the metadata of files, and columns of the source.
        places = file_places(self.spec.mode) if files else []
        keyed, refused = self._key_columns(frame)
        if self.spec.select or keyed:
            kept = [column.alias(f"tidelog place {i}") for i, column in enumerate(places)]
            names = ("file", "start")
            frame = self._selected(frame, [*kept, *keyed])
            places = [frame[f"tidelog place {i}"].alias(names[i]) for i in range(len(kept))]
            if self.spec.select and self.spec.sequence in frame.columns:
                # `select` may have given it a better type.
                frame = frame.withColumn(AT, frame[quoted(self.spec.sequence)])
        types = {
            column.name: type_name(column.dataType)
            for column in frame.schema.fields
            if not column.name.startswith("tidelog ")
        }
        if AT in frame.columns:
            types[self.spec.sequence] = type_name(frame.schema[AT].dataType)
        problem = check_schema(
            types, self.shape, self.spec.mode, self.relation, self.conversion.time_unit
        )
        problem = problem or refused
        if problem and not self.started:
            raise schema_error(self.name, problem, where)
        places += self._own_places(frame)
        encoded = encode(frame, self.shape, self.spec.mode, places=places, drift=problem)
        return Part(encoded, drift=problem)

    def _key_columns(self, frame: Any) -> tuple[list[Any], str]:
        """Return what an upsert takes from the source: the sequence, and what deletes.

        The second result says why the condition for deletions cannot be evaluated.
        """
        from pyspark.sql import functions as F

        found, refused = [], ""
        if self.spec.sequence in frame.columns:
            found.append(F.col(quoted(self.spec.sequence)).alias(AT))
        if self.spec.delete_when:
            # Text can be a condition: a column of a CSV file that is `true` or `false`.
            text = f"coalesce(try_cast(({self.spec.delete_when}) AS BOOLEAN), false)"
            try:
                condition = F.expr(text).alias(DELETING)
                _ = frame.select(condition).columns
                found.append(condition)
            except Exception as error:  # Spark's own, of either kind of session
                refused = f"Spark does not accept `delete_when`: {reason(error)}"
        return found, refused

    @property
    def upsert(self) -> Upsert | None:
        """How rows are replaced by key; None if they are not."""
        if not self.shape.keys:
            return None
        return Upsert(self.relation.name, self.shape.keys, bool(self.shape.sequence))

    def _own_places(self, frame: Any) -> list[Any]:
        """Return the columns of the order that a connector has added (source_order.py)."""
        if FILE not in frame.columns:
            return []
        place = frame[f"`{FILE}`"].alias("place")
        ordered = self.spec.mode in ORDERED
        return [place, frame[f"`{START}`"].alias("start")] if ordered else [place]

    def _selected(self, frame: Any, kept: Sequence[Any]) -> Any:
        """Return the selected columns, and those to keep."""
        from pyspark.sql import functions as F

        own = [F.col(f"`{name}`") for name in frame.columns if name.startswith("tidelog ")]
        if not self.spec.select:
            return frame.select("*", *kept)
        try:
            return frame.select(*map(F.expr, self.spec.select), *own, *kept)
        except Exception as error:  # Spark's own, of either kind of session
            raise DataError(
                f"source `{self.name}`: Spark does not accept `select`: {reason(error)}"
            ) from None


class TableSource(PipelineSource):
    """A table that Spark reads as a batch: JDBC, a catalog table, any format without a stream.

    It is read as a whole, as a snapshot, or by a column that grows (`watermark`): then an epoch has
    the rows above the last value, up to the largest one. A row that appears later with a smaller
    value is not seen.
    """

    def __init__(self, spec: Source, name: str, relation: Relation, records: Records) -> None:
        if spec.mode != "snapshot" and not spec.watermark:
            raise UsageError(
                f'source `{name}`: a table of format `{spec.format}` is read with mode = "snapshot"'
                '\n  help: or, by a column that grows: watermark = "id"'
            )
        if spec.mode == "snapshot" and spec.watermark:
            raise UsageError(f"source `{name}`: a snapshot is read as a whole, without `watermark`")
        super().__init__(spec, name, relation, records)

    def _polled(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        try:
            frame = self._table(spark)
            if not self.spec.watermark:
                return Batch([self.shaped(frame)], {"seen": "yes"})
            return self._above(frame, offsets.get("watermark"))
        except TidelogError:
            raise
        except Exception as error:  # Spark's own, of either kind of session
            raise _unreadable(self, error, "") from None

    def _table(self, spark: Any) -> Any:
        own = self.spec.options
        reader = spark.read.options(**with_driver(own) if self.spec.format == "jdbc" else own)
        if self.spec.table:
            return reader.table(self.spec.table)
        reader = reader.format(self.spec.format)
        return reader.load(self.spec.path) if self.spec.path else reader.load()

    def _above(self, frame: Any, last: str | None) -> Batch | None:
        """Return the rows above the last value of the watermark; None if there are none."""
        from pyspark.sql import functions as F

        name = self.spec.watermark
        if name not in frame.columns:
            raise DataError(f"source `{self.name}` has no column `{name}` for its watermark")
        column, kind = F.col(f"`{name}`"), frame.schema[name].dataType
        largest = frame.select(F.max(column).cast("string").alias("largest")).collect()[0][0]
        if largest is None or largest == last:
            return None
        new = frame.where(column <= F.lit(largest).cast(kind))
        if last is not None:
            new = new.where(column > F.lit(last).cast(kind))
        return Batch([self.shaped(new)], {"watermark": largest})


class StreamSource(PipelineSource):
    """Any format that Spark reads as a stream, and tables of a catalog."""

    is_stream = True

    def stream(self, spark: Any) -> Any:
        """Return the streaming frame."""
        reader = spark.readStream.options(**self.spec.options)
        if self.spec.schema:
            reader = reader.schema(self.spec.schema)
        try:
            if self.spec.table:
                frame = reader.table(self.spec.table)
            else:
                reader = reader.format(self.spec.format)
                frame = reader.load(self.spec.path) if self.spec.path else reader.load()
        except Exception as error:
            raise _unreadable(self, error, " as a stream") from None
        return self.shaped(frame).frame


def _unreadable(source: PipelineSource, error: Exception, how: str) -> TidelogError:
    """Return the error for a format that Spark does not have, or cannot read."""
    spec = source.spec
    if not spec.table and condition_of(error) == "DATA_SOURCE_NOT_FOUND":
        hint = did_you_mean(spec.format, SOURCE_FORMATS) or (
            "a connector is a jar that Spark must be given: see docs/pipelines.md"
        )
        return UsageError(
            f"source `{source.name}`: Spark has no format `{spec.format}`\n  help: {hint}"
        )
    what = reason(error, spec.options)
    return outage(f"source `{source.name}`: Spark cannot read it{how}: {what}", error)


class FrameSource(PipelineSource):
    """A DataFrame, a function from a session to one, or micro-batches that Spark passes in."""

    def __init__(self, spec: Source, name: str, relation: Relation, records: Records) -> None:
        super().__init__(spec, name, relation, records)
        self.is_stream = bool(getattr(spec.frame, "isStreaming", False))

    def stream(self, spark: Any) -> Any:
        """Return the streaming frame."""
        return self.shaped(self.spec.frame).frame

    def is_due(self) -> bool:
        """Return whether there is a frame to read."""
        return self.spec.frame is not None and super().is_due()

    def _polled(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        """Return the frame: every time if it is a snapshot, else once."""
        if self.spec.frame is None or (offsets and self.spec.mode != "snapshot"):
            return None
        return Batch([self.shaped(self._given(spark))], {"frame": "taken"})

    def _given(self, spark: Any) -> Any:
        if not callable(self.spec.frame):
            return self.spec.frame
        try:
            return self.spec.frame(spark)
        except TidelogError:
            raise
        except Exception as error:  # of the user's function, or of Spark
            raise outage(f"source `{self.name}`: {reason(error)}", error) from error

    def batch(
        self, frame: Any, number: int, query: str, offsets: Mapping[str, str]
    ) -> Batch | None:
        """Return a numbered micro-batch of `foreachBatch`; None if it was committed before."""
        known = offsets.get("query", "")
        if known and query and known != query:
            raise UsageError(
                f"source `{self.name}`: another streaming query has written to this pipeline before"
                "\n  help: one query per pipeline, with one checkpoint; a new checkpoint needs a"
                " new state folder, or `tidelog pipeline reset`"
            )
        if number <= int(offsets.get("batch", -1)):
            return None
        offsets = {"batch": str(number), **({"query": query} if query else {})}
        return Batch([self.shaped(frame)], offsets)


def pipeline_source(
    spec: Source, name: str, relation: Relation, records: Records
) -> PipelineSource:
    """Return the source for a declaration."""
    if spec.frame is not None or spec.format == "batches":
        return FrameSource(spec, name, relation, records)
    if spec.is_files:
        from tidelog.spark.source_files import FileSource

        return FileSource(spec, name, relation, records)
    if spec.format in ("kafka", "delta", "iceberg"):
        from tidelog.spark.source_tables import CONNECTED

        return CONNECTED[spec.format](spec, name, relation, records)
    if spec.format == "jdbc" or spec.mode == "snapshot" or spec.watermark:
        return TableSource(spec, name, relation, records)
    return StreamSource(spec, name, relation, records)


def type_name(spark_type: Any) -> str:
    """Return the name of a type of Spark."""
    name: str = spark_type.typeName()
    return name
