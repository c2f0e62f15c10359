"""Has work done in all shards: in one Spark job, or in this process."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog import errors
from tidelog.errors import DataError, LimitError, StateError, UsageError
from tidelog.spark import shard_task
from tidelog.spark.shard_letter import written
from tidelog.spark.shard_task import Work, count_of
from tidelog.spark.sources import first_line

Told = tuple[int, dict[str, Any], bytes]
"""What a shard tells: its number, words as JSON has them, and data."""
Answer = Callable[[Work], list[Told]]
"""Has a work done in all shards, and returns what each tells."""

_LONG = 1 << 19  # signs of a letter: it is copied for each task, and kept with the job


class BySpark:
    """Has work done by Spark, one job at a time."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        try:
            self._context = spark.sparkContext
        except Exception:  # a client of Spark Connect has none
            self._context = None
        self._frames: dict[int, Any] = {}

    def __call__(self, work: Work) -> list[Told]:
        """Have the work done, in one job; raise what a shard has told of."""
        claims = Path(work.folder) / "claims" / work.token
        claims.mkdir(parents=True)
        try:
            table = self._table(work)
        except Exception as error:  # Spark's own, of either kind of session
            raise DataError(f"Spark could not do the epoch: {_reason(error)}") from error
        finally:
            shutil.rmtree(claims, ignore_errors=True)
        shards, heads, parts = (table[name].to_pylist() for name in ("shard", "head", "data"))
        return _checked(list(zip(shards, map(json.loads, heads), parts, strict=True)))

    def _table(self, work: Work) -> Any:
        """Return what the shards tell, as a table.

        A job that is planned already only gets a letter. That makes half of the time of a small
        epoch. Without a context, or if the letter is long, the work is the function of the job.
        """
        count = count_of(work.sides)
        letter = None if self._context is None else written(work)
        if letter is None or len(letter) > _LONG:
            return self._planned(count, work).toArrow()
        if count not in self._frames:
            self._frames[count] = self._planned(count, shard_task.do_letter)
        self._context.setLocalProperty(shard_task.LETTER, letter)
        try:
            return self._frames[count].toArrow()
        finally:
            self._context.setLocalProperty(shard_task.LETTER, None)

    def _planned(self, count: int, task: Any) -> Any:
        return self._spark.range(0, count, 1, count).mapInArrow(task, shard_task.SCHEMA)


def here(work: Work) -> list[Told]:
    """Do the work in this process; raise what a shard has told of."""
    return _checked(shard_task.in_this_process(work))


def _reason(error: Exception) -> str:
    """Return what an error of Spark is about: the error of the worker, if that is it."""
    lines = [line for line in str(error).splitlines() if re.match(r"[\w.]+(Error|Exit)\b", line)]
    return lines[0] if lines else first_line(error)


def _checked(answers: list[Told]) -> list[Told]:
    for _, head, _ in answers:
        if "error" in head:
            kind = getattr(errors, head["error"])
            bases = (DataError, LimitError, StateError, UsageError)
            raise next(base for base in bases if issubclass(kind, base))(head["message"])
    return answers
