"""The files of a folder, here or wherever Spark can reach, and what tells them apart by schema.

A folder on this machine is listed directly. One with an address (`s3a://..`, `hdfs://..`) is listed
by Spark, as a job, so that nothing but Spark needs to know the file system.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tidelog.errors import UsageError

_GLOB = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]{}"})


@dataclass(frozen=True)
class File:
    """A file with rows."""

    name: str
    """Its last part, unique within the folder."""
    path: str
    size: int
    time: float
    """When it was last changed, in seconds."""

    @property
    def mark(self) -> str:
        """What is noted of a file that was taken."""
        return f"{self.size}:{self.time:.6f}"

    @property
    def spark_path(self) -> str:
        """The path as Spark takes it: signs that it would match with are only signs."""
        return self.path if "://" in self.path else self.path.translate(_GLOB)


def is_local(path: str) -> bool:
    """Return whether a path is one of this machine."""
    return "://" not in path or path.startswith("file://")


def list_files(path: str, spark: Any) -> list[File]:
    """Return the files of a folder, or the one file, in the order in which they came.

    Names that begin with a dot or an underscore are left out: files in the making have such.
    """
    if is_local(path):
        found = _list_local(path.removeprefix("file://"))
    else:
        found = _list_by_spark(path, spark)
    return sorted(found, key=lambda file: (file.time, file.name))


def _list_local(path: str) -> list[File]:
    try:
        if os.path.isfile(path):
            status = os.stat(path)
            return [File(os.path.basename(path), path, status.st_size, status.st_mtime_ns / 1e9)]
        found = []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name[0] not in "._" and entry.is_file():
                    status = entry.stat()
                    found.append(
                        File(entry.name, entry.path, status.st_size, status.st_mtime_ns / 1e9)
                    )
        return found
    except FileNotFoundError:
        return []  # nothing has come yet
    except OSError as error:
        raise UsageError(f"cannot list `{path}`: {error.strerror}") from None


def _list_by_spark(path: str, spark: Any) -> list[File]:
    rows = (
        spark.read.format("binaryFile").load(path).select("path", "modificationTime", "length")
    ).collect()
    files = []
    for row in rows:
        name = unquote(row["path"].rsplit("/", 1)[-1])
        if name[0] not in "._":
            files.append(
                File(name, row["path"], row["length"], row["modificationTime"].timestamp())
            )
    return files


def csv_header(file: File, options: Mapping[str, str], spark: Any) -> list[str]:
    """Return the names in the first line of a CSV file."""
    if not is_local(file.path):
        names: list[str] = spark.read.options(**options).csv(file.path).columns
        return names
    path = Path(file.path.removeprefix("file://"))
    opened = gzip.open if path.suffix == ".gz" else open
    encoding = options.get("encoding", options.get("charset", "utf-8-sig"))
    with opened(path, "rt", encoding=encoding, errors="replace", newline="") as lines:
        first = next(
            csv.reader(
                lines,
                delimiter=options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t"),
                quotechar=options.get("quote", '"') or None,
            ),
            [],
        )
    if options.get("ignoreLeadingWhiteSpace") == "true":
        first = [name.strip() for name in first]
    return first


def parquet_schema(file: File) -> Any:
    """Return the schema of a Parquet file on this machine, as Arrow has it; None if it is none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(file.path.removeprefix("file://"))
    except (pa.ArrowException, OSError):
        return None
