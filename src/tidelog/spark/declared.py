"""The declarations of a pipeline: sources bound to relations, sinks bound to views.

They are read from a pipeline file (pipeline_file.py) or made in Python. Each is checked when it is
made, as far as possible without the program and without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.database.webhook import check_address
from tidelog.errors import UsageError, did_you_mean
from tidelog.runtime.retry import Retry
from tidelog.values.durations import EXAMPLES, duration_of

MODES = ("append", "changes", "upsert", "snapshot", "debezium", "delta-changes")
PLACEMENTS = ("auto", "driver", "sharded")
READERS = ("spark", "arrow")
FILE_FORMATS = ("csv", "json", "parquet", "orc", "avro", "text")
SINK_FILES = ("parquet", "csv", "json", "orc")
SOURCE_FORMATS = (*FILE_FORMATS, "delta", "iceberg", "jdbc", "kafka", "table")
"""Formats that are known here; Spark may have others."""
SINK_FORMATS = (*SINK_FILES, "delta", "iceberg", "jdbc", "kafka", "table", "console", "python")
TRIGGER_FORMATS = ("webhook", "lines")
"""Formats of triggers, besides those of sinks."""
WHATS = ("table", "changes")
_TABLES = ("delta", "iceberg", "table")


@dataclass(frozen=True)
class Source:
    """Where the rows of a relation come from.

    `mode` says what a row means. `append`: it is inserted. `changes`: it is inserted or deleted, as
    the column `op` says. `upsert`: it replaces the row with the same keys. `snapshot`: all rows
    together are the relation. `debezium` and `delta-changes`: the envelopes of these systems; with
    `keys`, the updates of Debezium need not have the row before.
    `columns` maps columns of the relation to their names in the source. `frame` is a DataFrame,
    streaming or not, or a function from a session to one, instead of format and path.
    """

    relation: str
    format: str = "parquet"
    path: str = ""
    mode: str = "append"
    op: str = "op"
    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    table: str = ""
    """A table of a catalog, instead of a path."""
    schema: str = ""
    """The columns of the source as Spark's DDL, if they are not the declared ones."""
    select: Sequence[str] = ()
    """SQL expressions that make the columns of the relation out of those of the source."""
    nulls: Mapping[str, str] = field(default_factory=dict)
    """Values in place of nulls, by column of the relation. Other nulls are refused."""
    keys: Sequence[str] = ()
    """For `upsert` and `debezium`: the columns of the relation that identify a row."""
    sequence: str = ""
    """For `upsert`: the column of the source that says which row of a key is the newest."""
    delete_when: str = ""
    """For `upsert`: an SQL condition on the source; a row that fulfils it deletes its key."""
    watermark: str = ""
    """For a table without a stream: a column that grows. Rows above its last value are read."""
    every: str = "10m"
    """How often a source without a stream is read."""
    reader: str = "spark"
    """`arrow` reads small local files in this process, without Spark."""
    files_per_epoch: int = 1000
    retain: str = ""
    """For `append`: how long rows are retained, as in `30d`; then they are deleted."""
    retain_by: str = ""
    """The column with the time of a row, for `retain`."""
    value: str = "json"
    """What the values of Kafka's messages are: json, avro, or confluent-avro."""
    time_unit: str = "us"
    """The unit of integer timestamps, as in Debezium's envelopes: us or ms."""
    frame: Any = None

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)
        one_of("time_unit", self.time_unit, ("us", "ms"))
        one_of("reader", self.reader, READERS)
        seconds_of(self.every)
        if self.files_per_epoch < 1:
            raise UsageError(f"`files_per_epoch` must be 1 or more, not {self.files_per_epoch}")
        if self.path and self.table:
            raise UsageError("a source has a `path` or a `table`, not both")
        needs_path = self.is_files or self.format in ("delta", "iceberg")
        if self.frame is None and not self.path and not self.table and needs_path:
            raise UsageError(f"a source of format `{self.format}` needs a `path`")
        if self.reader == "arrow" and not self.is_files:
            raise UsageError('`reader = "arrow"` is for files')
        if bool(self.retain) != bool(self.retain_by):
            raise UsageError(
                "`retain` and `retain_by` belong together"
                '\n  help: retain = "30d" and retain_by = "at", a column with the time of a row'
            )
        if self.retain and self.mode != "append":
            raise UsageError(f'`retain` is for mode = "append", not "{self.mode}"')
        if self.retain:
            seconds_of(self.retain)
        if self.mode == "delta-changes" and self.format != "delta":
            raise UsageError('mode "delta-changes" is for format "delta"')
        self._check_keys()

    def _check_keys(self) -> None:
        if self.mode == "upsert" and not self.keys:
            raise UsageError(
                'mode "upsert" needs `keys`, the columns that identify a row\n  help: keys = ["id"]'
            )
        if self.keys and self.mode not in ("upsert", "debezium"):
            raise UsageError('`keys` is for the modes "upsert" and "debezium"')
        if len(set(self.keys)) < len(self.keys):
            raise UsageError(f"`keys` names a column twice: {', '.join(self.keys)}")
        for key in ("sequence", "delete_when"):
            if getattr(self, key) and self.mode != "upsert":
                raise UsageError(f'`{key}` is for mode "upsert"')
        if self.keys and self.reader == "arrow":
            raise UsageError('a source with `keys` is read by Spark, not with reader = "arrow"')

    @property
    def is_files(self) -> bool:
        """Whether the source is a folder or a file that Spark reads by path."""
        return self.frame is None and self.format in FILE_FORMATS and not self.table


@dataclass(frozen=True)
class Trigger:
    """What to do with changes of a view: with insertions (`on="+"`), deletions (`-`) or `both`.

    An event, the changes of an epoch, is sent to a `webhook`, appended to the file `path` as lines
    of JSON, or written like the changes of a sink with a `format`. `where` is a condition in the
    language on the columns of the view.
    """

    view: str
    on: str = "+"
    where: str = ""
    webhook: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    """For the signatures of messages."""
    timeout: float = 10.0
    max_rows: int = 1000
    """How many rows a message has at most."""
    ca_file: str = ""
    path: str = ""
    format: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    retry: int | None = None
    retry_seconds: float | None = None

    def __post_init__(self) -> None:
        one_of("on", self.on, ("+", "-", "both"))
        if self.webhook:
            check_address(str.__str__(self.webhook))
        if bool(self.webhook) + bool(self.format or self.path) != 1:
            raise UsageError("a trigger has a `webhook`, a `path`, or a `format` of a sink")
        if self.secret and not self.webhook:
            raise UsageError("`secret` is for a `webhook`")
        if self.timeout <= 0 or self.max_rows < 1:
            raise UsageError("`timeout` and `max_rows` must be above 0")

    @property
    def sign(self) -> str:
        """The sign of the changes; the empty text for both."""
        return "" if self.on == "both" else self.on

    def sink(self) -> Sink:
        """Return the sink that delivers the events."""
        kind = self.format or ("webhook" if self.webhook else "lines")
        return Sink(
            self.view, "changes", kind, self.path, self.name or f"{self.view}-{kind}", self.options,
            retry=self.retry, retry_seconds=self.retry_seconds, trigger=self,
        )  # fmt: skip


@dataclass(frozen=True)
class Sink:
    """Where a view is written: its rows (`what="table"`) or its changes (`what="changes"`).

    `table` names a table of a catalog, for the formats `delta`, `iceberg` and `table`.
    `partition_by` names columns by whose values files are put into folders. `call` is a Python
    function for the format `python`. It is called with the epoch and an Arrow table. After a crash
    it may be called a second time for the last epoch.
    """

    view: str
    what: str = "table"
    format: str = "parquet"
    path: str = ""
    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    call: Callable[[int, Any], object] | None = None
    table: str = ""
    partition_by: Sequence[str] = ()
    retry: int | None = None
    """How often a sink that fails is tried again with `--once`; None is as in the pipeline."""
    retry_seconds: float | None = None
    """How long to wait before the first time; None is as in the pipeline."""
    trigger: Trigger | None = None
    """The trigger whose events this sink delivers."""

    def __post_init__(self) -> None:
        one_of("what", self.what, WHATS)
        Retry(self.retry or 0, self.retry_seconds or 0.0)
        if self.trigger is not None and self.format in TRIGGER_FORMATS:
            return
        one_of("format", self.format, SINK_FORMATS)
        if self.format in SINK_FILES and not self.path:
            raise UsageError(f"a sink of format `{self.format}` needs a `path`")
        if self.format == "delta" and bool(self.path) == bool(self.table):
            raise UsageError("a sink of format `delta` needs a `path` or a `table`, one of them")
        if self.format in ("iceberg", "table") and not self.table:
            raise UsageError(
                f"a sink of format `{self.format}` needs a `table`"
                '\n  help: table = "catalog.database.name"'
            )
        if self.table and self.format not in _TABLES:
            raise UsageError(f"`table` is for the formats {', '.join(_TABLES)}")
        if self.partition_by and self.format not in (*SINK_FILES, *_TABLES):
            raise UsageError(f"a sink of format `{self.format}` has no `partition_by`")
        if self.format == "python" and self.call is None:
            raise UsageError("a sink of format `python` needs a function; see `Sink.call`")
        if self.format == "jdbc" and not {"url", "dbtable"} <= set(self.options):
            raise UsageError(
                "a sink of format `jdbc` needs the options `url` and `dbtable`"
                '\n  help: options = { url = "jdbc:postgresql://host/db", dbtable = "fraud" }'
            )
        if self.format == "kafka":
            if self.what != "changes":
                raise UsageError(
                    "a sink of format `kafka` takes changes, because a topic has no rows to replace"
                    '\n  help: what = "changes"'
                )
            if not {"kafka.bootstrap.servers", "topic"} <= set(self.options):
                raise UsageError(
                    "a sink of format `kafka` needs the options `kafka.bootstrap.servers` and"
                    ' `topic`\n  help: options = { "kafka.bootstrap.servers" = "host:9092",'
                    ' topic = "fraud" }'
                )


@dataclass(frozen=True)
class Declaration:
    """All that a pipeline is made from, so that another process can make the same one."""

    program: str
    """The text of the program."""
    program_name: str
    state: str
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    keys: Mapping[str, Any] = field(default_factory=dict)
    """The other arguments of `Pipeline`."""


def seconds_of(duration: str) -> float:
    """Return a duration in seconds.

    >>> seconds_of("10m")
    600.0
    """
    found = duration_of(duration)
    if found is None:
        raise UsageError(f"{duration!r} is not a duration\n  help: a number and a unit: {EXAMPLES}")
    return found.total_seconds()


def one_of(what: str, value: str, known: Sequence[str]) -> None:
    """Raise UsageError if a value is not one of the known ones."""
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise UsageError(
            f"`{what}` must be one of {', '.join(known)}, not {value!r}"
            + (f"; {hint}" if hint else "")
        )


def named(names: Sequence[str]) -> list[str]:
    """Return the names, with a number appended to repeated ones.

    >>> named(["edge", "node", "edge"])
    ['edge', 'node', 'edge-2']
    """
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return result
