"""Sources that are polled: what has come since the offsets that were committed.

A source keeps no memory of its own. It is given the offsets of the last committed epoch and returns
a `Batch`: frames with the rows that came since, and the offsets to commit together with them. An
epoch that is lost is polled again, and one that was committed is never seen again.

    kind       item              mark
    files      name of a file    its size and time
    snapshot   "seen"            what tells this snapshot from the next one
    delta      "version"         the last version taken
    frame      "frame"           "taken"
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tidelog.errors import DataError, UsageError
from tidelog.io.tabular import Records
from tidelog.logic.program import Relation
from tidelog.spark.checking import Checker, arrow_type_name, check_schema, schema_error
from tidelog.spark.conversion import Reading
from tidelog.spark.declared import Source
from tidelog.spark.envelopes import ORDERED, Shape, encode, file_places, shape_of, text_schema
from tidelog.spark.listing import File, csv_header, is_local, list_files, parquet_schema
from tidelog.spark.local_files import fits_here, read_here

_DIGEST = 16


@dataclass
class Part:
    """Rows of one schema: a frame for Spark to compute, or a table that is here already."""

    frame: Any = None
    table: Any = None
    ranks: Mapping[str, int] = field(default_factory=dict)
    drift: str = ""
    files: Sequence[File] = ()
    """The files that have the rows, in the order in which they are meant, if there are files."""
    make: Callable[[], Part] | None = None
    """Makes the part, where that can wait: whoever reads the files needs none."""


@dataclass
class Batch:
    """What a source has for an epoch."""

    parts: list[Part]
    marks: Mapping[str, str]
    """Offsets to commit, by item."""
    waiting: int = 0
    """How many items are left for the next epoch."""
    marks_of: Callable[[Sequence[Any]], Mapping[str, str]] | None = None
    """Tells the offsets from the tables of the parts, where they are not known before."""
    oldest: float | None = None
    """When the oldest item came, in seconds."""


class PolledSource(ABC):
    """A source at work. Subclasses know how to poll."""

    reading = Reading()
    always = False
    """Whether every poll reads everything, because nothing tells whether there is something new."""

    def __init__(self, spec: Source, name: str, relation: Relation, records: Records) -> None:
        self.spec, self.name, self.relation = spec, name, relation
        self.shape: Shape = shape_of(spec, relation)
        self.reading = self._reading()
        self.checker = Checker(relation, records, spec.mode, self.shape, self.reading)

    def _reading(self) -> Reading:
        unit = self.spec.time_unit if self.spec.mode == "debezium" else ""
        return Reading(time_unit=unit)

    @abstractmethod
    def poll(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        """Return what came since the offsets; None if nothing did."""

    def _part(
        self,
        frame: Any,
        started: bool,
        *,
        where: str = "",
        ranks: Mapping[str, int] | None = None,
    ) -> Part:
        """Return a frame in the common shape, if its schema fits.

        One that does not is an error before the first row, and a drift of the schema afterwards.
        """
        types = {column.name: _type_name(column.dataType) for column in frame.schema.fields}
        problem = check_schema(
            types, self.shape, self.spec.mode, self.relation, self.reading.time_unit
        )
        if problem and not started:
            raise schema_error(self.name, problem, where)
        places = [] if ranks is None else file_places(self.spec.mode)
        encoded = encode(frame, self.shape, self.spec.mode, places=places, drift=problem)
        return Part(frame=encoded, ranks=ranks or {}, drift=problem)


class FileSource(PolledSource):
    """A folder as a stream of files, or as one snapshot."""

    def __init__(self, spec: Source, name: str, relation: Relation, records: Records) -> None:
        super().__init__(spec, name, relation, records)
        self._schemas: dict[str, Any] = {}

    def _reading(self) -> Reading:
        text = self.spec.format
        unit = self.spec.time_unit if self.spec.mode == "debezium" else ""
        return Reading(empty_text=text == "csv", json_text=text == "json", time_unit=unit)

    def poll(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        """Return the files that were not taken yet, the first ones of them if they are many."""
        files = list_files(self.spec.path, spark)
        if self.spec.mode == "snapshot":
            digest = hashlib.blake2b(digest_size=_DIGEST)
            for file in files:
                digest.update(f"{file.name}\0{file.mark}\0".encode())
            marks = {"seen": digest.hexdigest()}
            if not files or offsets.get("seen") == marks["seen"]:
                return None
            taken, waiting = files, 0
        else:
            new = [file for file in files if file.name not in offsets]
            taken, waiting = new[: self.spec.files_per_epoch], len(new)
            waiting -= len(taken)
            if not taken:
                return None
            marks = {file.name: file.mark for file in taken}
        ranks = {file.name: rank for rank, file in enumerate(taken)}
        parts = []
        started = bool(offsets)
        groups = self._by_schema(taken, spark)
        groups.sort(key=lambda group: ranks[group[0].name])  # the first file decides if all fits
        for group in groups:
            part = self._later(group, spark, ranks) or self._now(group, spark, started, ranks)
            part.files = sorted(group, key=lambda file: ranks[file.name])
            parts.append(part)
            started = True
        return Batch(parts, marks, waiting, oldest=min(file.time for file in taken))

    def _later(self, files: list[File], spark: Any, ranks: Mapping[str, int]) -> Part | None:
        """Return a part that is made when it is asked for, if its schema is known to fit."""
        simple = self.spec.format == "parquet" and self.spec.mode in ("append", "changes")
        if not simple or not is_local(files[0].path):
            return None
        schema = parquet_schema(files[0])
        if schema is None:
            return None
        types = {column.name: arrow_type_name(column.type) for column in schema}
        if check_schema(types, self.shape, self.spec.mode, self.relation, self.reading.time_unit):
            return None

        return Part(ranks=ranks, make=lambda: self._now(files, spark, True, ranks))

    def _now(self, files: list[File], spark: Any, started: bool, ranks: Mapping[str, int]) -> Part:
        """Return the rows of files: read here, or as a frame for Spark to read."""
        table = self._read_here(files, spark)
        if table is not None:
            return Part(table=table, ranks=ranks)
        return self._part(self._frame(files, spark), started, where=files[0].path, ranks=ranks)

    def describe(self, offsets: Mapping[str, str]) -> str:
        """Say how many files were taken and how many wait, as far as can be told without Spark."""
        if self.spec.mode == "snapshot" or not is_local(self.spec.path):
            return ""
        waiting = sum(file.name not in offsets for file in list_files(self.spec.path, None))
        text = f"; {len(offsets):,} files taken, {waiting:,} waiting"
        changed = self.changed(offsets)
        if changed:
            text += f"; changed since, and not read again: {', '.join(changed[:5])}"
        return text

    def changed(self, offsets: Mapping[str, str]) -> list[str]:
        """Return the names of files that are not as they were when they were taken."""
        if self.spec.mode == "snapshot" or not is_local(self.spec.path):
            return []
        return [
            file.name
            for file in list_files(self.spec.path, None)
            if offsets.get(file.name, file.mark) != file.mark
        ]

    def check_first(self) -> str:
        """Say what is wrong with the schema of the first file here; empty if nothing is.

        This needs no Spark, and looks only at what says its schema by itself.
        """
        if not is_local(self.spec.path) or self.spec.mode == "debezium":
            return ""
        files = list_files(self.spec.path, None)
        if not files:
            return ""
        types: dict[str, str]
        if self.spec.format == "csv" and self._has_header():
            types = dict.fromkeys(csv_header(files[0], self.spec.options, None), "string")
        elif self.spec.format == "parquet":
            schema = parquet_schema(files[0])
            if schema is None:
                return f"source `{self.name}`: `{files[0].path}` is not a Parquet file"
            types = {column.name: arrow_type_name(column.type) for column in schema}
        else:
            return ""
        problem = check_schema(types, self.shape, self.spec.mode, self.relation)
        return str(schema_error(self.name, problem, files[0].path)) if problem else ""

    def _has_header(self) -> bool:
        return self.spec.options.get("header", "false").lower() == "true"

    def _by_schema(self, files: list[File], spark: Any) -> list[list[File]]:
        """Return the files in groups of one schema; where order matters, only neighbours share."""
        signed = [(self.signature(file, spark), file) for file in files]
        if self.spec.mode not in ORDERED:
            signed.sort(key=lambda pair: pair[0])
        by_signature = groupby(signed, key=lambda pair: pair[0])
        return [[file for _, file in group] for _, group in by_signature]

    def signature(self, file: File, spark: Any) -> str:
        """Return what tells files of one schema from those of another."""
        if self.spec.format == "csv" and self._has_header():
            return "\0".join(csv_header(file, self.spec.options, spark))
        if self.spec.format == "parquet" and is_local(file.path):
            schema = parquet_schema(file)
            return "" if schema is None else "; ".join(f"{c.name}: {c.type}" for c in schema)
        if self.spec.format in ("csv", "json"):
            return ""  # read as texts of the declared columns
        return file.path

    def _read_here(self, files: list[File], spark: Any) -> Any:
        """Return the rows of files as a table, if they are read without Spark; else None."""
        header = None
        if self.spec.format == "csv" and self._has_header():
            header = self.signature(files[0], spark).split("\0")
        table = read_here(files, self.spec, self.shape, self.relation, header)
        if table is not None and not fits_here(table, self.spec, self.shape, self.relation):
            return None  # Spark calls types by other names: it has to say what is wrong
        return table

    def _frame(self, files: list[File], spark: Any) -> Any:
        source, signature = self.spec, self.signature(files[0], spark)
        reader = spark.read.format(source.format).options(**source.options)
        schema: Any = None
        if source.format == "csv":
            header = signature.split("\0") if self._has_header() else None
            schema = text_schema(self.shape, source.mode, header)
        elif source.format == "json":
            schema = text_schema(self.shape, source.mode)
        else:
            schema = self._schemas.get(signature)
        if schema is not None:
            reader = reader.schema(schema)
        try:
            frame = reader.load([file.spark_path for file in files])
            self._schemas.setdefault(signature, frame.schema)
        except Exception as error:  # Spark's own, of either kind of session
            raise DataError(
                f"source `{self.name}`: Spark cannot read `{files[0].path}`: {first_line(error)}"
            ) from None
        return frame


class TableSource(PolledSource):
    """A table that Spark reads whole: JDBC, or any other format. Its mode is `snapshot`."""

    always = True

    def __init__(self, spec: Source, name: str, relation: Relation, records: Records) -> None:
        if spec.mode != "snapshot":
            raise UsageError(
                f'source `{name}`: a table of format `{spec.format}` is read with mode = "snapshot"'
            )
        super().__init__(spec, name, relation, records)

    def poll(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        """Return the whole table."""
        reader = spark.read.format(self.spec.format).options(**self.spec.options)
        try:
            frame = reader.load(self.spec.path) if self.spec.path else reader.load()
        except Exception as error:
            raise DataError(
                f"source `{self.name}`: Spark cannot read it: {first_line(error)}"
            ) from None
        return Batch([self._part(frame, bool(offsets))], {"seen": "yes"})


class FrameSource(PolledSource):
    """A DataFrame, or a function from a session to one, or micro-batches that are handed over."""

    def __init__(self, spec: Source, name: str, relation: Relation, records: Records) -> None:
        super().__init__(spec, name, relation, records)
        self.always = spec.mode == "snapshot"

    def poll(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        """Return the frame: every time if it is a snapshot, else once."""
        if self.spec.frame is None or (offsets and not self.always):
            return None
        given = self.spec.frame
        frame = given(spark) if callable(given) else given
        return Batch([self._part(frame, bool(offsets))], {"frame": "taken"})

    def batch(self, frame: Any, number: int, offsets: Mapping[str, str]) -> Batch | None:
        """Return a numbered micro-batch, as `foreachBatch` hands them; None if it was taken."""
        if number <= int(offsets.get("batch", -1)):
            return None
        return Batch([self._part(frame, bool(offsets))], {"batch": str(number)})


def polled(spec: Source, name: str, relation: Relation, records: Records) -> PolledSource:
    """Return the source that works as declared."""
    if spec.frame is not None or spec.format == "batches":
        return FrameSource(spec, name, relation, records)
    if spec.is_files:
        return FileSource(spec, name, relation, records)
    if spec.format == "delta":
        from tidelog.spark.delta import DeltaSource

        return DeltaSource(spec, name, relation, records)
    if spec.format == "kafka":
        from tidelog.spark.kafka import KafkaSource

        return KafkaSource(spec, name, relation, records)
    return TableSource(spec, name, relation, records)


def first_line(error: Exception) -> str:
    r"""Return what an error of Spark is about, without the stack of the JVM.

    >>> first_line(Exception("An error occurred while calling o1.load.\n: java.Oops: no driver"))
    'java.Oops: no driver'
    """
    lines = str(error).strip().split("\n", maxsplit=2)
    if lines[0].startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].removeprefix(": ")  # the first one is about Python, not about Spark
    return lines[0]


def _type_name(spark_type: Any) -> str:
    name: str = spark_type.typeName()
    return name
