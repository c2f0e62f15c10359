"""Changes of a view that Spark writes in the job of an epoch.

    staged/<token>/rows/      Parquet files: part i has what shard i has returned
    staged/<token>/answers/   what the tasks say
    changes/                  where files are moved before the commit that names them

A staged folder belongs to one attempt of an epoch, and is removed after it. What a process that was
killed has left is removed at the next start. Files in `changes` that no epoch names are ignored
(sharding/manifest.py).
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.errors import StateError
from tidelog.io.atomic import sync_together
from tidelog.spark.shard_epoch import read_answers
from tidelog.spark.shard_task import changes_file

STAGED = "staged"
BY_SPARK = ".spark.parquet"
"""How the names of files end that Spark has written."""
SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.files.maxRecordsPerFile": "0",  # one file for each shard
}


class Staged:
    """The staged files of an epoch."""

    def __init__(self, folder: Path) -> None:
        self._state = folder
        self._folder = folder / STAGED / secrets.token_hex(8)
        self.answers = self._folder / "answers"
        self.answers.mkdir(parents=True)
        # What Spark's committer would make. Hadoop starts the program `chmod` for each new folder.
        (self._folder / "rows" / "_temporary" / "0" / "_temporary").mkdir(parents=True)

    def write(self, frame: Any) -> None:
        """Have Spark write the rows that tasks return."""
        writer = frame.write.mode("append").options(**_options(frame.schema))
        writer.parquet((self._folder / "rows").as_uri())

    def read(self, shards: int) -> list[tuple[int, dict[str, Any]]]:
        """Return what the tasks say."""
        return read_answers(self.answers, shards)

    def keep(self, epoch: int, view: str, answers: Sequence[tuple[int, dict[str, Any]]]) -> None:
        """Move the files to where they are kept; add their names to the answers."""
        rows = self._folder / "rows"
        files = {
            int(match[1]): path
            for path in rows.iterdir()
            if (match := re.match(r"part-(\d+)-", path.name))
        }
        kept: list[Path] = []
        for shard, head in answers:
            _, count = head["views"].get(view, ("", 0))
            if count:
                if shard not in files:
                    raise StateError(f"Spark has not written the changes of shard {shard}")
                name = changes_file(epoch, shard, BY_SPARK)
                kept.append(self._state / name)
                os.replace(files[shard], kept[-1])
                head["views"][view] = name, count
        sync_together([*kept, self._state / "changes"])

    def remove(self) -> None:
        """Remove what is left."""
        shutil.rmtree(self._folder, ignore_errors=True)


def remove_staged(folder: Path) -> None:
    """Remove what processes that were killed have left behind."""
    shutil.rmtree(folder / STAGED, ignore_errors=True)


_COMMITTER = {
    # Spark's committer protects readers of a folder from unfinished files. Nobody reads this one.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.cleanup.skipped": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


def _options(schema: Any) -> dict[str, str]:
    """Return options for the writer. Numbers differ too much for dictionaries, which take time."""
    return _COMMITTER | {
        f"parquet.enable.dictionary#{field.name}": "false"
        for field in schema.fields
        if field.dataType.typeName() in ("long", "double", "timestamp")
    }


def without_nulls(schema: pa.Schema) -> pa.Schema:
    """Return the schema of rows that have no nulls, as those of views.

    Then Parquet has no definition levels, and Spark does not look for nulls: a third of the time.
    """
    return pa.schema([field.with_nullable(False) for field in schema])


def can_be_staged(schema: pa.Schema) -> bool:
    """Return whether Spark can write changes of a view in the job of an epoch: if it is flat."""
    return bool(len(schema)) and not any(pa.types.is_nested(field.type) for field in schema)
