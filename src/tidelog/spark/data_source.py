"""`spark.read.format("tidelog")`: the views of a pipeline, and their changes, as a data source.

    option   meaning
    path     the folder that `state` names in the pipeline file, or that of a durable database
    view     the name of the view
    what     table (default): its rows; changes: inserted and deleted rows, with op and epoch
    epoch    for a table: the view as it was at this epoch; by default, the last committed one
    since    for changes: those after this epoch; by default, all rows of the view come first

A stream reads changes. Its offset is an epoch, so each change is read once. Spark calls the methods
in Python processes of its own, on the driver and in tasks: those must see the folder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tidelog.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.spark.stored_views import StoredState, ViewPart

try:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        InputPartition,
    )
except ImportError:  # without PySpark, nobody calls this
    DataSource = DataSourceReader = DataSourceStreamReader = InputPartition = object

_OPTIONS = ("path", "view", "what", "epoch", "since")
_NOTHING = -1  # the epoch before the first one


def register(spark: Any) -> None:
    """Let a session know the format `tidelog`."""
    spark.dataSource.register(TidelogDataSource)


class TidelogDataSource(DataSource):  # type: ignore[misc]
    """The format `tidelog`."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "tidelog"

    def schema(self) -> Any:
        """Return the columns of the view, from the stored program."""
        from pyspark.sql.pandas.types import from_arrow_schema

        from tidelog.spark.arrow_types import spark_schema

        wanted = Wanted(self.options)
        state = wanted.state()
        relation = state.relation(wanted.view)
        schema = spark_schema(relation, state.program.records, changes=wanted.changes)
        return from_arrow_schema(schema)

    def reader(self, schema: Any) -> TidelogReader:
        """Return a reader of the rows or the retained changes."""
        return TidelogReader(Wanted(self.options))

    def streamReader(self, schema: Any) -> TidelogStreamReader:
        """Return a reader of changes."""
        return TidelogStreamReader(Wanted(self.options))


class Wanted:
    """The checked options of a read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        known = {name.lower(): value for name, value in options.items()}
        if any(name.startswith("option.") for name in known):
            raise UsageError(
                "Spark does not pass the options of a catalog's table on to a source in Python, so"
                " there cannot be one\n  help: CREATE TEMPORARY VIEW .. USING tidelog OPTIONS (..)"
            )
        for name in known:
            if name not in _OPTIONS:
                hint = did_you_mean(name, _OPTIONS) or f"its options: {', '.join(_OPTIONS)}"
                raise UsageError(f"format `tidelog` has no option `{name}`\n  help: {hint}")
        for name in ("path", "view"):
            if name not in known:
                raise UsageError(
                    f"format `tidelog` needs the option `{name}`"
                    '\n  help: .option("path", "state").option("view", "fraud")'
                )
        self.path, self.view = known["path"], known["view"]
        what = known.get("what", "table")
        if what not in ("table", "changes"):
            raise UsageError(f"`what` is `table` or `changes`, not `{what}`")
        self.changes = what == "changes"
        self.epoch = _number("epoch", known.get("epoch"))
        self.since = _number("since", known.get("since"))
        if self.changes and self.epoch is not None:
            raise UsageError('`epoch` is for what = "table"; changes begin with `since`')
        if not self.changes and self.since is not None:
            raise UsageError('`since` is for what = "changes"')

    def state(self) -> StoredState:
        """Return the state that is read."""
        from tidelog.spark.stored_views import open_state

        return open_state(self.path)

    def parts(self, since: int | None, epoch: int) -> list[ViewPart]:
        """Return the parts of the view at an epoch, or of its changes since another one."""
        from dataclasses import replace

        state = self.state()
        if since is not None and since > _NOTHING:
            return state.change_parts(self.view, since, epoch) if since < epoch else []
        parts = state.parts(self.view, epoch)
        return [replace(part, with_epoch=True) for part in parts] if self.changes else parts


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.strip().isdecimal():
        raise UsageError(f"`{name}` is the number of an epoch, not `{text}`")
    return int(text)


class TidelogReader(DataSourceReader):  # type: ignore[misc]
    """Reads a view, or its changes so far, at the epoch that is the last one when it is planned."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted

    def partitions(self) -> list[Any]:
        """Return what each task reads."""
        wanted = self._wanted
        epoch = wanted.state().last_epoch() if wanted.epoch is None else wanted.epoch
        return [InputPartition(part) for part in wanted.parts(wanted.since, epoch)]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition; there is none if nothing has changed."""
        return iter(()) if partition is None else partition.value.read()


class TidelogStreamReader(DataSourceStreamReader):  # type: ignore[misc]
    """Reads the changes between two epochs; the first time, all rows of the view."""

    def __init__(self, wanted: Wanted) -> None:
        if not wanted.changes:
            raise UsageError(
                "a stream of a view is a stream of its changes"
                '\n  help: .option("what", "changes") adds the columns `op` and `epoch`'
            )
        self._wanted = wanted

    def initialOffset(self) -> dict[str, int]:
        """Return where a new query begins."""
        since = self._wanted.since
        return {"epoch": _NOTHING if since is None else since}

    def latestOffset(self) -> dict[str, int]:
        """Return the last committed epoch."""
        return {"epoch": self._wanted.state().last_epoch()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Any]:
        """Return what the tasks of a micro-batch read."""
        return [InputPartition(p) for p in self._wanted.parts(start["epoch"], end["epoch"])]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition."""
        return iter(()) if partition is None else partition.value.read()
