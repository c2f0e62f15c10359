"""What a pipeline is made of, as data: sources bound to relations, sinks bound to views.

A pipeline file becomes these (pipeline_file.py), and Python programs make them. Each is checked
when it is made, as far as that is possible without the program and without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.errors import UsageError, did_you_mean

MODES = ("append", "changes", "snapshot", "debezium", "delta-changes")
PLACEMENTS = ("auto", "driver", "sharded", "relational")
FILE_FORMATS = ("csv", "json", "parquet", "orc", "avro", "text")
SINK_FORMATS = ("parquet", "csv", "json", "delta", "jdbc", "console", "python")
WHATS = ("table", "changes")


@dataclass(frozen=True)
class Source:
    """Where the rows of a relation come from.

    `mode` says what a row means. `append`: it came. `changes`: it came or went, as the column `op`
    tells. `snapshot`: all rows together are the relation. `debezium` and `delta-changes`: the
    envelopes of those. `columns` gives, for columns of the relation, their names in the source.
    `frame` is a DataFrame, or a function from a session to one, in the place of format and path.
    """

    relation: str
    format: str = "parquet"
    path: str = ""
    mode: str = "append"
    op: str = "op"
    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    files_per_epoch: int = 1000
    time_unit: str = "us"
    """The unit of timestamps that are whole numbers, as in Debezium's envelopes: us or ms."""
    frame: Any = None

    def __post_init__(self) -> None:
        one_of("mode", self.mode, MODES)
        one_of("time_unit", self.time_unit, ("us", "ms"))
        if self.files_per_epoch < 1:
            raise UsageError(f"`files_per_epoch` is 1 or more, not {self.files_per_epoch}")
        if self.frame is None and not self.path and (self.is_files or self.format == "delta"):
            raise UsageError(f"a source of format `{self.format}` needs a `path`")
        if self.mode == "delta-changes" and self.format != "delta":
            raise UsageError('mode "delta-changes" is for format "delta"')

    @property
    def is_files(self) -> bool:
        """Whether the source is a folder, or a file, that Spark reads by path."""
        return self.frame is None and self.format in FILE_FORMATS


@dataclass(frozen=True)
class Sink:
    """Where a view goes: its rows (`what="table"`) or what changes in it (`what="changes"`).

    `call` is a Python function for the format `python`. It is called with the epoch and an Arrow
    table. After a crash it may be called once more for the last epoch.
    """

    view: str
    what: str = "table"
    format: str = "parquet"
    path: str = ""
    name: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    call: Callable[[int, Any], object] | None = None

    def __post_init__(self) -> None:
        one_of("what", self.what, WHATS)
        one_of("format", self.format, SINK_FORMATS)
        if self.format in ("parquet", "csv", "json", "delta") and not self.path:
            raise UsageError(f"a sink of format `{self.format}` needs a `path`")
        if self.format == "python" and self.call is None:
            raise UsageError("a sink of format `python` needs a function; see `Sink.call`")
        if self.format == "jdbc" and not {"url", "dbtable"} <= set(self.options):
            raise UsageError(
                "a sink of format `jdbc` needs the options `url` and `dbtable`"
                '\n  help: options = { url = "jdbc:postgresql://host/db", dbtable = "fraud" }'
            )


def one_of(what: str, value: str, known: Sequence[str]) -> None:
    """Raise UsageError for a value that is not one of those known."""
    if value not in known:
        hint = did_you_mean(str(value), known)
        raise UsageError(
            f"`{what}` is one of {', '.join(known)}, not {value!r}" + (f"; {hint}" if hint else "")
        )


def named(names: Sequence[str]) -> list[str]:
    """Return the names, with a number behind those that are there already.

    >>> named(["edge", "node", "edge"])
    ['edge', 'node', 'edge-2']
    """
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return result
