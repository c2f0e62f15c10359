"""List the files of a folder, local or remote, and read their schemas.

A local folder is listed directly. A folder with an address (`s3a://..`, `hdfs://..`) is listed by a
Spark job, so that only Spark needs access to the file system.
"""

from __future__ import annotations

import csv
import gzip
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tidelog.errors import UsageError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_GLOB = str.maketrans({sign: f"\\{sign}" for sign in "\\*?[]{}"})


@dataclass(frozen=True)
class File:
    """A file of a source."""

    name: str
    """Its path below the folder of the source."""
    path: str
    size: int
    time: float
    """When it was last modified, in seconds since 1970."""

    @property
    def offset(self) -> str:
        """The offset that is committed when the file was read."""
        return f"{self.size}:{self.time:.6f}"

    @property
    def spark_path(self) -> str:
        """The path for Spark, with characters of glob patterns escaped."""
        return spark_path(self.path)


def spark_path(path: str) -> str:
    """Return a path for Spark, with characters of glob patterns escaped."""
    return path.translate(_GLOB)


def is_local(path: str) -> bool:
    """Return whether a path is on this machine: it has no scheme, or that of files."""
    return path.startswith("file:/") or not _SCHEME.match(path)


def list_files(path: str, spark: Any) -> list[File]:
    """Return the files of a folder, or the one file, by modification time.

    Names that begin with a dot or an underscore are left out: they are files still being written.
    """
    found = _list_local(plain_path(path)) if is_local(path) else _list_by_spark(path, spark)
    return sorted(found, key=lambda file: (file.time, file.name))


def _list_local(path: str) -> list[File]:
    try:
        if os.path.isfile(path):
            return [local_file(path, os.path.dirname(path))]
        if not os.path.exists(path):
            return []  # there are no files yet
        found = []
        for folder, below, names in os.walk(path, onerror=_raise):
            below[:] = [name for name in below if name[0] not in "._"]
            found += [
                local_file(os.path.join(folder, name), path)
                for name in names
                if name[0] not in "._"
            ]
        return found
    except FileNotFoundError:
        return []  # one was removed meanwhile: the next listing is complete
    except OSError as error:
        raise UsageError(f"cannot list `{path}`: {error.strerror}") from None


def _raise(error: OSError) -> None:
    raise error


def local_file(path: str, root: str) -> File:
    """Return a local file below the folder of a source."""
    status = os.stat(path)
    name = os.path.relpath(path, root)
    return File(name, path, status.st_size, status.st_mtime_ns / 1e9)


def _list_by_spark(path: str, spark: Any) -> list[File]:
    rows = (
        spark.read.format("binaryFile")
        .option("recursiveFileLookup", "true")
        .load(path)
        .select("path", "modificationTime", "length")
    ).collect()
    files = []
    for row in rows:
        name = below(row["path"], path)
        if name.rsplit("/", 1)[-1][0] not in "._":
            files.append(
                File(name, row["path"], row["length"], row["modificationTime"].timestamp())
            )
    return files


def below(address: str, root: str) -> str:
    """Return the path of a file below the folder of its source, for people.

    >>> below("file:///in/road/day%201/a.csv", "/in/road")
    'day 1/a.csv'
    """
    path, folder = (plain_path(part).rstrip("/") for part in (address, root))
    return path.removeprefix(f"{folder}/") if path != folder else path.rsplit("/", 1)[-1]


def plain_path(address: str) -> str:
    """Return the absolute path of a local file; the address itself, decoded, of any other."""
    if address.startswith("file:"):
        return unquote("/" + address.removeprefix("file:").lstrip("/"))
    return unquote(address) if "://" in address else os.path.abspath(address)


def csv_header(file: File, options: Mapping[str, str], spark: Any) -> list[str]:
    """Return the names in the first line of a CSV file."""
    if not is_local(file.path):
        names: list[str] = spark.read.options(**options).csv(file.spark_path).columns
        return names
    path = Path(plain_path(file.path))
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
    """Return the Arrow schema of a local Parquet file; None if it is not a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(plain_path(file.path))
    except (pa.ArrowException, OSError):
        return None
