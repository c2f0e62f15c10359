"""Delta tables without a jar: read and written by delta-rs, the package `deltalake`.

A source is polled by version. `delta-changes` reads the change feed of the versions since the last
one; `snapshot` the table, if its version is a new one; `append` the files that have come. A file
that was written by a compaction has old rows, and a relation is a set: they change nothing.

A sink writes one version for each epoch, and Delta's log keeps the number of the epoch with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.errors import DataError, UsageError
from tidelog.spark.checking import arrow_type_name, check_schema, schema_error
from tidelog.spark.envelopes import CHANGE_TYPE, WENT
from tidelog.spark.frames import for_spark
from tidelog.spark.sinks import Writer
from tidelog.spark.sources import Batch, Part, PolledSource, first_line

_MODES = ("append", "snapshot", "delta-changes")


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError:
        raise UsageError(
            "Delta tables need the package deltalake, which is not installed"
            "\n  help: pip install 'tidelog[spark]'"
        ) from None
    return deltalake


class DeltaSource(PolledSource):
    """A Delta table, followed by its versions."""

    def poll(self, spark: Any, offsets: Mapping[str, str]) -> Batch | None:
        """Return what the versions since the last one have brought."""
        if self.spec.mode not in _MODES:
            raise UsageError(
                f"source `{self.name}`: the mode of a Delta table is {', '.join(_MODES)}"
            )
        deltalake = _deltalake()
        options = dict(self.spec.options)
        if not deltalake.DeltaTable.is_deltatable(self.spec.path, options):
            return None  # not made yet
        table = deltalake.DeltaTable(self.spec.path, storage_options=options)
        last = int(offsets.get("version", -1))
        if table.version() <= last:
            return None
        marks = {"version": str(table.version())}
        try:
            part = self._read(table, last, spark)
        except (OSError, ValueError, deltalake.exceptions.DeltaError) as error:
            raise DataError(
                f"source `{self.name}`: cannot read versions after {last} of `{self.spec.path}`:"
                f" {first_line(error)}"
            ) from None
        return Batch([] if part is None else [part], marks)

    def _read(self, table: Any, last: int, spark: Any) -> Part | None:
        if self.spec.mode == "delta-changes":
            feed = table.load_cdf(starting_version=last + 1, ending_version=table.version())
            return self._arrow_part(_in_order(_plain(pa.table(feed.read_all()))), last >= 0)
        if self.spec.mode == "append" and not table.metadata().partition_columns:
            files = set(table.file_uris())
            if last >= 0:
                before = _deltalake().DeltaTable(self.spec.path, version=last)
                files -= set(before.file_uris())
            if not files:
                return None
            return self._part(spark.read.parquet(*sorted(files)), last >= 0)
        return self._arrow_part(_plain(table.to_pyarrow_table()), last >= 0)

    def _arrow_part(self, table: pa.Table, started: bool) -> Part:
        """Return a table in the shape of `envelopes.encode`."""
        shape = self.shape
        types = {column.name: arrow_type_name(column.type) for column in table.schema}
        problem = check_schema(types, shape, self.spec.mode, self.relation)
        if problem and not started:
            raise schema_error(self.name, problem, self.spec.path)
        if problem:
            texts = pa.array([str(row) for row in table.to_pylist()], pa.string())
            return Part(table=pa.table({"bad": texts}), drift=problem)
        found = {f"new{i}": table[name] for i, name in enumerate(shape.columns)}
        if not found:
            found["rows"] = pa.array([0] * table.num_rows, pa.int8())
        if shape.op:
            found["op"] = table[shape.op].cast(pa.string())
        return Part(table=pa.table(found))


def _plain(table: pa.Table) -> pa.Table:
    """Return a table without views of texts, for which Arrow lacks some functions."""
    for i, column in enumerate(table.schema):
        if pa.types.is_string_view(column.type):
            table = table.set_column(i, column.name, table[i].cast(pa.string()))
    return table


def _in_order(feed: pa.Table) -> pa.Table:
    """Return a change feed in the order of its versions; what goes comes first in each.

    Rows within a version have no order. One that went and came in the same version is there.
    """
    went = pc.is_in(feed[CHANGE_TYPE].cast(pa.string()), pa.array(sorted(WENT)))
    keys = pa.table({"version": feed["_commit_version"], "came": pc.invert(went).cast(pa.int8())})
    by = [("version", "ascending"), ("came", "ascending")]
    return feed.take(pc.sort_indices(keys, sort_keys=by))


class DeltaWriter(Writer):
    """A Delta table of a view, or of its changes."""

    def start(self, spark: Any) -> None:
        """See that the package is there before the first epoch."""
        super().start(spark)
        _deltalake()

    @property
    def is_there(self) -> bool:
        """Whether the table is there."""
        return bool(_deltalake().DeltaTable.is_deltatable(self.spec.path, dict(self.spec.options)))

    def written_epochs(self) -> set[int]:
        """Return the last epoch in Delta's log."""
        last = self._last() if self.is_there else None
        return set() if last is None else {last}

    def _last(self) -> int | None:
        options = dict(self.spec.options)
        table = _deltalake().DeltaTable(self.spec.path, storage_options=options)
        found: int | None = table.transaction_version(self._who)
        return found

    @property
    def _who(self) -> str:
        return f"tidelog:{self.relation.name}:{self.spec.what}"

    def write_table(self, epoch: int, table: pa.Table) -> None:
        """Write the view as a new version."""
        self._write(epoch, table, "overwrite")

    def write_changes(self, epoch: int, table: pa.Table) -> None:
        """Append the changes of an epoch, unless they are there."""
        self._write(epoch, table, "append")

    def _write(self, epoch: int, table: pa.Table, mode: str) -> None:
        deltalake = _deltalake()
        options = dict(self.spec.options)
        if mode == "append" and self.is_there:
            last = self._last()
            if last is not None and last >= epoch:
                return
        deltalake.write_deltalake(
            self.spec.path,
            for_spark(table),
            mode=mode,
            schema_mode="overwrite" if mode == "overwrite" else None,
            storage_options=options or None,
            commit_properties=deltalake.CommitProperties(
                app_transactions=[deltalake.Transaction(app_id=self._who, version=epoch)]
            ),
        )
