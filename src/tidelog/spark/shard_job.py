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
from tidelog.spark.shard_task import SCHEMA, Work, count_of, in_this_process
from tidelog.spark.sources import first_line

Told = tuple[int, dict[str, Any], bytes]
"""What a shard tells: its number, words as JSON has them, and data."""
Answer = Callable[[Work], list[Told]]
"""Has a work done in all shards, and returns what each tells."""


def by_spark(spark: Any, work: Work) -> list[Told]:
    """Have the work done by Spark, in one job; raise what a shard has told of."""
    count = count_of(work.sides)
    claims = Path(work.folder) / "claims" / work.token
    claims.mkdir(parents=True)
    try:
        table = spark.range(0, count, 1, count).mapInArrow(work, SCHEMA).toArrow()
    except Exception as error:  # Spark's own, of either kind of session
        raise DataError(f"Spark could not do the epoch: {_reason(error)}") from error
    finally:
        shutil.rmtree(claims, ignore_errors=True)
    shards, heads, parts = (table[name].to_pylist() for name in ("shard", "head", "data"))
    return _checked(list(zip(shards, map(json.loads, heads), parts, strict=True)))


def here(work: Work) -> list[Told]:
    """Do the work in this process; raise what a shard has told of."""
    return _checked(in_this_process(work))


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
