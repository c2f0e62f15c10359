"""A folder as a stream of files, or as one snapshot.

Spark finds new files and reads them (`readStream`). A stream has one schema, but files may differ:
the columns of CSV files may be in another order, and those of Parquet files may have changed. So
the driver looks at the header of each new file. If all are as the stream expects, the stream's own
frame is read. Otherwise Spark reads the files as batches, one for each schema.

A snapshot is polled: all files together are the relation. So are files that Arrow reads
(`reader = "arrow"`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pyarrow as pa

from tidelog.errors import DataError, UsageError
from tidelog.io.conversion import ConversionOptions
from tidelog.io.tabular import Records
from tidelog.logic.program import Relation
from tidelog.spark.checking import arrow_type_name, check_schema, schema_error
from tidelog.spark.declared import Source
from tidelog.spark.envelopes import CORRUPT, ORDERED, text_schema
from tidelog.spark.jobs import reason
from tidelog.spark.listing import (
    File,
    below,
    csv_header,
    is_local,
    list_files,
    local_file,
    parquet_schema,
    plain_path,
)
from tidelog.spark.local_files import fits_here, read_here
from tidelog.spark.retries import outage
from tidelog.spark.sources import Batch, Part, PipelineSource
from tidelog.values.types import Kind

_DIGEST = 16
GONE = "gone"
"""The offset of a file that Spark had found, and that was removed before it was read."""
# By default, Spark ignores files that are much older than the newest one.
_STREAM_OPTIONS = {"maxFileAge": "36500d"}

# What Parquet files have for a column of each kind, most often. Of other kinds it is unknown.
_DECLARED = {
    Kind.NUMBER: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.SYMBOL: pa.string(),
    Kind.BOOL: pa.bool_(),
    Kind.DATE: pa.date32(),
}


class FileSource(PipelineSource):
    """A folder of files."""

    def __init__(self, spec: Source, name: str, relation: Relation, records: Records) -> None:
        super().__init__(spec, name, relation, records)
        self.is_stream = spec.mode != "snapshot" and spec.reader == "spark"
        self._schemas: dict[str, Any] = {}
        self._expected = ""
        """The signature of the files that the stream's own frame can read."""

    def _conversion(self) -> ConversionOptions:
        text = self.spec.format
        unit = self.spec.time_unit if self.spec.mode == "debezium" else ""
        return ConversionOptions(empty_text=text == "csv", json_text=text == "json", time_unit=unit)

    @property
    def where(self) -> str:
        """The folder."""
        return self.spec.path

    @property
    def is_empty(self) -> bool:
        """Whether it is a local folder without files, or one that does not exist."""
        return is_local(self.spec.path) and not list_files(self.spec.path, None)

    # --- the stream ---

    def stream(self, spark: Any) -> Any:
        """Return the streaming frame: new files, at most `files_per_epoch` at a time."""
        files = self._known_files(spark)
        if not self.started and (problem := self._problem(files[0], spark) if files else ""):
            raise schema_error(self.name, problem, files[0].path)
        fitting = [file for file in files[-1:] if not self._problem(file, spark)]
        self._expected = self.signature(fitting[0], spark) if fitting else self._declared_signature
        # Spark finds folders that name a partition column; for others it needs this option.
        recursive = {} if self._partitions(files) else {"recursiveFileLookup": "true"}
        options = {
            **_STREAM_OPTIONS,
            **recursive,
            "maxFilesPerTrigger": str(self.spec.files_per_epoch),
            **self.spec.options,
        }
        schema = self._schema(self._expected, fitting or files[:1], spark)
        reader = spark.readStream.format(self.spec.format).options(**options)
        try:
            frame = reader.schema(schema).load(self._stream_path())
        except Exception as error:  # Spark's own, of either kind of session
            raise self._unreadable(self.spec.path, error) from None
        return self.shaped(frame, files=True, where=self.spec.path).frame

    def _stream_path(self) -> str:
        """Return the path for Spark. A local folder that does not exist yet is made."""
        if not is_local(self.spec.path):
            return self.spec.path
        path = plain_path(self.spec.path)
        if os.path.exists(path):
            return File("", path, 0, 0.0).spark_path
        if not any(sign in path for sign in "*?[{"):
            try:
                os.makedirs(path)
            except OSError as error:
                raise UsageError(f"cannot make the folder `{path}`: {error.strerror}") from None
        return path

    def _known_files(self, spark: Any) -> list[File]:
        """Return the files that exist before the stream starts; of remote ones, only some."""
        if is_local(self.spec.path):
            return list_files(self.spec.path, None)
        try:
            frame = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
            rows = frame.load(self.spec.path).select("path", "length").limit(1).collect()
        except Exception:
            return []  # there are none yet; an address that is wrong fails when the stream starts
        return [
            File(below(row["path"], self.spec.path), row["path"], row["length"], 0) for row in rows
        ]

    def arrived(self, spark: Any, addresses: Sequence[str]) -> Batch:
        """Return the files of a micro-batch, in order, and how to read them."""
        found = {address: self._file(address) for address in addresses}
        files = sorted(
            (file for file in found.values() if file is not None),
            key=lambda file: (file.time, file.name),
        )
        offsets = {file.name: file.offset for file in files}
        gone = [below(address, self.spec.path) for address, file in found.items() if file is None]
        offsets |= dict.fromkeys(gone, GONE)
        oldest = min((file.time for file in files), default=None)
        batch = Batch([Part()], offsets, files, oldest or None)
        is_expected = all(self.signature(file, spark) == self._expected for file in files)
        return batch if is_expected else self.apart(spark, batch)

    def apart(self, spark: Any, batch: Batch) -> Batch:
        """Return the same files, read as batches instead of by the stream."""
        if any(part.frame is not None for part in batch.parts):
            return batch
        # One group after the other: where order matters, files of a group are adjacent.
        parts = [self._part(group, spark) for group in self._by_schema(batch.files, spark)]
        return replace(batch, parts=parts)

    def _file(self, address: str) -> File | None:
        """Return a file that Spark has found; None if it was removed since."""
        if is_local(address):
            try:
                return local_file(plain_path(address), plain_path(self.spec.path))
            except FileNotFoundError:
                return None
            except OSError as error:
                raise DataError(
                    f"source `{self.name}`: cannot read `{plain_path(address)}`: {error.strerror}"
                ) from None
        return File(below(address, self.spec.path), plain_path(address), 0, 0.0)

    def _part(self, files: list[File], spark: Any) -> Part:
        return self.shaped(self._frame(files, spark), files=True, where=files[0].path)

    # --- polling: snapshots, and files that Arrow reads ---

    def is_due(self) -> bool:
        """Return True: new files are found by listing."""
        return True

    def _polled(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        """Return the files that were not read yet; of a snapshot all, if there is a new one."""
        files = list_files(self.spec.path, spark)
        if self.spec.mode == "snapshot":
            digest = hashlib.blake2b(digest_size=_DIGEST)
            for file in files:
                digest.update(f"{file.name}\0{file.offset}\0".encode())
            reached = {"seen": digest.hexdigest()}
            if not files or offsets.get("seen") == reached["seen"]:
                return None
            taken = files
        else:
            new = [file for file in files if file.name not in offsets]
            taken = new[: self.spec.files_per_epoch]
            if not taken:
                return None
            reached = {file.name: file.offset for file in taken}
        rank = {file.name: at for at, file in enumerate(taken)}
        groups = self._by_schema(taken, spark)
        groups.sort(key=lambda group: rank[group[0].name])  # the first decides whether it fits
        parts = [self._polled_part(group, spark) for group in groups]
        oldest = min((file.time for file in taken), default=None)
        return Batch(parts, reached, taken, oldest)

    def _polled_part(self, files: list[File], spark: Any) -> Part:
        if self.spec.reader == "arrow":
            table = self._read_here(files, spark)
            if table is not None:
                return Part(table=table)
        return self._part(files, spark)

    def _read_here(self, files: list[File], spark: Any) -> Any:
        """Return the rows of files as a table if they can be read without Spark, else None."""
        header = None
        if self.spec.format == "csv" and self._has_header():
            header = self.signature(files[0], spark).split("\0")
        table = read_here(files, self.spec, self.shape, self.relation, header)
        if table is not None and not fits_here(table, self.spec, self.shape, self.relation):
            return None  # Spark has other type names: it writes the error message
        return table

    # --- what is known without Spark ---

    def file_counts(self, offsets: Mapping[str, str]) -> dict[str, Any] | None:
        """Return how many files were read and how many wait, and the names of those that changed.

        None if that is not known without Spark.
        """
        if self.spec.mode == "snapshot" or not is_local(self.spec.path):
            return None
        waiting = sum(file.name not in offsets for file in list_files(self.spec.path, None))
        return {"read": len(offsets), "waiting": waiting, "changed": self.changed(offsets)}

    def removed(self, offsets: Mapping[str, str]) -> list[str]:
        """Return the names of files that were removed before they were read."""
        return [name for name, offset in offsets.items() if offset == GONE]

    def changed(self, offsets: Mapping[str, str]) -> list[str]:
        """Return the names of files that have changed since they were read."""
        if self.spec.mode == "snapshot" or not is_local(self.spec.path):
            return []
        return [
            file.name
            for file in list_files(self.spec.path, None)
            if offsets.get(file.name, file.offset) not in (file.offset, GONE)
        ]

    def check_first(self) -> str:
        """Return what is wrong with the schema of the first local file; empty if nothing is.

        Spark is not needed. Only formats whose files state their schema are checked.
        """
        if not is_local(self.spec.path):
            return ""
        files = list_files(self.spec.path, None)
        problem = self._problem(files[0], None) if files else ""
        return str(schema_error(self.name, problem, files[0].path)) if problem else ""

    def _problem(self, file: File, spark: Any) -> str:
        """Return why a file does not fit, judged by its header; empty if it fits."""
        if self.spec.select or self.spec.mode == "debezium":
            return ""  # checked when the frame exists
        types: dict[str, str]
        if self.spec.format == "csv" and self._has_header():
            types = dict.fromkeys(csv_header(file, self.spec.options, spark), "string")
        elif self.spec.format == "parquet" and is_local(file.path):
            schema = parquet_schema(file)
            if schema is None:
                raise DataError(
                    f"source `{self.name}`: Spark cannot read `{file.path}`: not a Parquet file"
                )
            types = {column.name: arrow_type_name(column.type) for column in schema}
        else:
            return ""
        types |= dict.fromkeys(self._partitions([file]), "string")
        return check_schema(types, self.shape, self.spec.mode, self.relation)

    # --- schemas ---

    def _has_header(self) -> bool:
        return self.spec.options.get("header", "false").lower() == "true"

    @property
    def _declared_signature(self) -> str:
        """The signature of files that are as declared."""
        if self.spec.format == "csv" and self._has_header():
            return "\0".join(self.shape.all)
        types = self._declared_types if self.spec.format == "parquet" else None
        return "" if types is None else _signed(types)

    @property
    def _declared_types(self) -> dict[str, pa.DataType] | None:
        """The types of the columns of Parquet files as declared; None if they are unknown."""
        if self._is_own_layout or self.shape.also:
            return None
        columns = zip(self.shape.columns, self.relation.columns, strict=True)
        types = {name: _DECLARED.get(column.type.kind) for name, column in columns}
        known = {name: type_ for name, type_ in types.items() if type_ is not None}
        if len(known) < len(types):
            return None
        return ({self.shape.op: pa.string()} if self.shape.op else {}) | known

    @property
    def _is_own_layout(self) -> bool:
        """Whether the files have other columns than the relation."""
        return bool(self.spec.select) or self.spec.mode == "debezium"

    def _by_schema(self, files: Sequence[File], spark: Any) -> list[list[File]]:
        """Group files by schema; where order matters, only adjacent files."""
        signed = [(self.signature(file, spark), file) for file in files]
        if self.spec.mode not in ORDERED:
            signed.sort(key=lambda pair: pair[0])
        by_signature = groupby(signed, key=lambda pair: pair[0])
        return [[file for _, file in group] for _, group in by_signature]

    def signature(self, file: File, spark: Any) -> str:
        """Return a text that is the same for files of the same schema."""
        if self.spec.schema:
            return ""  # all files have the schema that the user states
        if self.spec.format == "csv" and self._has_header():
            return "\0".join(csv_header(file, self.spec.options, spark))
        if self.spec.format == "parquet" and is_local(file.path):
            schema = parquet_schema(file)
            if schema is None:
                return ""
            types = {column.name: column.type for column in schema}
            wanted = (*self.shape.all, *self.shape.also)
            if not self._is_own_layout and all(name in types for name in wanted):
                types = {name: types[name] for name in wanted}  # others are not read
            return _signed(types)
        return ""

    def _schema(self, signature: str, files: Sequence[File], spark: Any) -> Any:
        """Return the schema for Spark's reader of files with a signature."""
        if self.spec.schema:
            return self.spec.schema
        if self.spec.format == "csv":
            header = signature.split("\0") if self._has_header() else list(self.shape.all)
            return text_schema(self.shape, self.spec.mode, [*header, *self._missing(header, files)])
        if self.spec.format == "json" and not self.spec.select:
            return text_schema(self.shape, self.spec.mode)
        if signature not in self._schemas:
            self._schemas[signature] = self._inferred(files, spark)
        return self._schemas[signature]

    def _inferred(self, files: Sequence[File], spark: Any) -> Any:
        """Return the schema of files, as Spark infers it; of no files, the declared one."""
        if not files:
            if self.spec.select:
                raise UsageError(
                    f"source `{self.name}` has no file yet, so the columns for `select` are unknown"
                    '\n  help: state them: schema = "id long, at timestamp"'
                )
            types = self._declared_types if self.spec.format == "parquet" else None
            if types is not None:
                from pyspark.sql.pandas.types import from_arrow_schema

                return from_arrow_schema(pa.schema(list(types.items())))
            return text_schema(self.shape, self.spec.mode).removesuffix(f", `{CORRUPT}` STRING")
        reader = spark.read.format(self.spec.format).options(**self.spec.options)
        try:
            return reader.load([file.spark_path for file in files[:1]]).schema
        except Exception as error:
            raise self._unreadable(files[0].path, error) from None

    def _missing(self, header: Sequence[str], files: Sequence[File]) -> list[str]:
        """Return the partition columns: Spark takes them from the paths."""
        return [name for name in self._partitions(files) if name not in header]

    def _partitions(self, files: Sequence[File]) -> list[str]:
        """Return the columns that the paths of files state, as in `day=2026-03-01/a.csv`."""
        folders = {part for file in files for part in file.name.split("/")[:-1]}
        stated = {part.partition("=")[0] for part in folders if "=" in part}
        return [name for name in self.shape.all if name in stated]

    def _frame(self, files: list[File], spark: Any) -> Any:
        """Return a frame with the rows of files of one schema, read as a batch."""
        schema = self._schema(self.signature(files[0], spark), files, spark)
        options = dict(self.spec.options)
        if any("=" in file.name for file in files) and is_local(self.spec.path):
            options.setdefault("basePath", plain_path(self.spec.path))
        reader = spark.read.format(self.spec.format).options(**options).schema(schema)
        try:
            return reader.load([file.spark_path for file in files])
        except Exception as error:  # Spark's own, of either kind of session
            raise self._unreadable(files[0].path, error) from None

    def _unreadable(self, path: str, error: Exception) -> DataError:
        text = f"source `{self.name}`: Spark cannot read `{path}`: {reason(error)}"
        return outage(text, error)


def _signed(types: Mapping[str, pa.DataType]) -> str:
    return "; ".join(f"{name}: {type_}" for name, type_ in types.items())
