"""The streaming query of a pipeline: one micro-batch over all streams is one epoch.

The streams are united, each with the number of its source as a tag. `foreachBatch` does the epoch.
Spark remembers in the checkpoint what it has read. The state of the pipeline has the ids of the
query and of the last batch: a batch that runs again is recognised, and a checkpoint that does not
belong to the state is refused.

    checkpoint    0 1 2 3 | 4         what Spark will read next
    state         query Q, batch 3    what is committed

An epoch is never interrupted. To stop, the query is stopped between two epochs.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tidelog.errors import DataError, UsageError
from tidelog.spark.jobs import reason, settings
from tidelog.spark.retries import outage
from tidelog.spark.sources import PipelineSource
from tidelog.spark.union import Columns, tagged, united

QUERY = "tidelog query"
"""The name under which the ids of query and batch are committed. No source can have it."""
_ID, _BATCH = "id", "batch"
_CHECKPOINTS = "spark.sql.streaming.checkpointFileManagerClass"
_CHECKPOINT_MANAGER = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Writes the logs of the checkpoint, which is in a local folder. It renames files, as the default
does. But the default starts the program `readlink` for each part of a path, about 35 times for each
micro-batch, which takes about 0.1 s."""
_OPENING = "Initializing sources"  # what a query says of itself at its start
_PATIENCE = 5.0  # seconds
_STEP = 0.2  # seconds between two looks at a running query


class _Stopped(Exception):
    """Ends a micro-batch that began after the pipeline was stopped."""


def query_offsets(query: str, batch: int) -> dict[str, str]:
    """Return what is committed of a query with an epoch."""
    return {_ID: query, _BATCH: str(batch)}


def batch_of(offsets: Mapping[str, str]) -> int:
    """Return the last batch that is committed; -1 if there is none."""
    return int(offsets.get(_BATCH, -1))


def is_committed(offsets: Mapping[str, str], query: str, batch: int) -> bool:
    """Return whether a batch is committed already; raise UsageError if it is of another query."""
    if offsets.get(_ID, query) != query:
        raise other_query()
    return batch <= batch_of(offsets)


def other_query() -> UsageError:
    """Return the error for a checkpoint that does not belong to the state."""
    return UsageError(
        "the checkpoint of the streaming query is not the one that this state was made with:"
        " Spark would read rows again that are committed, or skip rows that are not"
        "\n  help: restore the folder `checkpoint`, or begin again with `tidelog pipeline reset`"
    )


def check_connect(streams: Sequence[PipelineSource], has_query: bool) -> None:
    """Raise UsageError if a session of Spark Connect cannot run a pipeline."""
    for source in streams:
        if not source.spec.is_files:
            raise UsageError(
                f"source `{source.name}` is a stream, and this is a session of Spark Connect, which"
                " runs the functions of streams on its server"
                "\n  help: run the pipeline with `--master`, or with spark-submit"
            )
    if has_query:
        raise UsageError(
            "the state was made by a streaming query, which Spark Connect cannot continue"
            "\n  help: run the pipeline with `--master`, or with spark-submit"
        )


class EpochStream:
    """The running query over the streams of a pipeline."""

    def __init__(
        self, spark: Any, name: str, streams: Sequence[PipelineSource], folder: Path
    ) -> None:
        self._spark, self._name, self._folder = spark, name, folder
        self.streams = streams
        self.columns: Columns = {}
        """Where the frame of a micro-batch has the columns of each stream."""
        self._query: Any = None
        self._error: BaseException | None = None
        self._turn = threading.Condition()
        self._is_busy = False
        self._is_stopped = False

    def check(self, offsets: Mapping[str, str], has_rows: bool) -> None:
        """Raise UsageError if the checkpoint does not belong to the committed offsets."""
        found = self._query_id()
        if offsets and found != offsets.get(_ID):
            raise other_query()
        if self.streams and self._last_batch() > batch_of(offsets):
            raise other_query()  # Spark has finished a batch that is not in the state
        if not offsets and has_rows and self.streams:
            raise UsageError(
                "the state has rows of these sources, but no streaming query has read them:"
                " an older version of Tidelog, or another kind of reader, has"
                "\n  help: begin again with `tidelog pipeline reset`"
            )

    def _query_id(self) -> str:
        """Return the id of the query that the checkpoint belongs to; empty if there is none."""
        try:
            found: str = json.loads((self._folder / "metadata").read_text(encoding="utf-8"))["id"]
            return found
        except (OSError, ValueError, KeyError):
            return ""

    def _last_batch(self) -> int:
        """Return the last batch that Spark has recorded as done; -1 if there is none."""
        commits = self._folder / "commits"
        names = os.listdir(commits) if commits.is_dir() else []
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    def start(self, epoch: Callable[[Any, str, int], object], every: float | None) -> None:
        """Start the query: until everything available is read, or at an interval in seconds."""

        def each(frame: Any, batch: int) -> None:
            self._each(epoch, frame, batch)

        together = united(
            [tagged(s.stream(self._spark), tag) for tag, s in enumerate(self.streams)]
        )
        self.columns = together.columns
        writer = together.frame.writeStream.foreachBatch(each).queryName(f"tidelog {self._name}")
        writer = writer.option("checkpointLocation", self._folder.as_uri())
        if every is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{max(0, round(every * 1000))} milliseconds")
        try:
            with settings(self._spark, _checkpoint_settings(self._spark)):
                self._query = writer.start()
                self._initialized()
        except Exception as error:  # Spark's own, of either kind of session
            raise outage(
                f"Spark cannot start the streaming query: {reason(error)}", error
            ) from error

    def _initialized(self) -> None:
        """Wait until the query has opened its logs, which it does by the settings at that time."""
        end = time.monotonic() + _PATIENCE
        while time.monotonic() < end and self._query.isActive:
            if self._query.status["message"] not in ("Initializing StreamExecution", _OPENING):
                return
            time.sleep(0.005)

    def _each(self, epoch: Callable[[Any, str, int], object], frame: Any, batch: int) -> None:
        """Do a micro-batch, unless the pipeline was stopped."""
        with self.turn():
            try:
                epoch(frame, self._query_id(), batch)
            except BaseException as error:
                self._error = error
                raise

    def turn(self) -> _Turn:
        """Return a context in which no other epoch runs."""
        return _Turn(self)

    def take_turn(self) -> None:
        """Wait until no epoch runs, and begin one."""
        with self._turn:
            self._turn.wait_for(lambda: not self._is_busy)
            if self._is_stopped:
                raise _Stopped
            self._is_busy = True

    def give_turn(self) -> None:
        """End an epoch."""
        with self._turn:
            self._is_busy = False
            self._turn.notify_all()

    def wait(self, seconds: float = _STEP) -> bool:
        """Wait a moment; return whether the query has ended. Raise what an epoch has raised."""
        if self._query is None:
            return True
        try:
            ended = bool(self._query.awaitTermination(seconds))
        except Exception as error:  # Spark's own: the query has failed
            if self._error is not None:
                raise self._error from None
            raise outage(f"the streaming query failed: {reason(error)}", error) from error
        if ended and self._error is not None:
            raise self._error
        return ended

    def stop(self) -> None:
        """Stop the query after the epoch that runs, if any."""
        with self._turn:
            self._is_stopped = True
            self._turn.wait_for(lambda: not self._is_busy)
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:
                if self._error is None:
                    raise DataError(f"Spark cannot stop the query: {reason(error)}") from error

    @property
    def progress(self) -> Mapping[str, Any] | None:
        """Spark's report on the last micro-batch."""
        last = None if self._query is None else self._query.lastProgress
        return None if last is None else dict(last)


def _checkpoint_settings(spark: Any) -> dict[str, str]:
    """Return settings for the query, unless the user has chosen, or Spark has no such class."""
    if spark.conf.get(_CHECKPOINTS, None) is not None:
        return {}
    context = spark.sparkContext
    try:
        context._jvm.java.lang.Class.forName(_CHECKPOINT_MANAGER)
    except Exception:  # ClassNotFoundException, as py4j wraps it
        return {}
    return {_CHECKPOINTS: _CHECKPOINT_MANAGER}


class _Turn:
    def __init__(self, stream: EpochStream) -> None:
        self._stream = stream

    def __enter__(self) -> None:
        self._stream.take_turn()

    def __exit__(self, *error: object) -> None:
        self._stream.give_turn()
