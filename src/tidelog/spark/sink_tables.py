"""Views in tables of a catalog, whatever kind of table each is.

Tables of Delta and Iceberg take changes by MERGE. Other tables are overwritten as a whole by INSERT
OVERWRITE. Their changes have one partition for each epoch, which is overwritten, so that writing an
epoch twice has the result of writing it once.
"""

from __future__ import annotations

from typing import Any

from tidelog.errors import DataError, UsageError
from tidelog.spark.jobs import settings
from tidelog.spark.sink_delta import DeltaWriter
from tidelog.spark.sink_iceberg import IcebergWriter
from tidelog.spark.sinks import Writer
from tidelog.spark.table_sql import column, last_epoch, quoted
from tidelog.spark.view_changes import EPOCH

_BY_PROVIDER: dict[str, type[Writer]] = {"delta": DeltaWriter, "iceberg": IcebergWriter}
_DYNAMIC = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}


class CatalogWriter(Writer):
    """A table of a catalog: finds out what it is, and lets the right writer do it."""

    _writer: Writer

    def start(self, spark: Any, token: str) -> None:
        """Find out what kind of table it is."""
        super().start(spark, token)
        kind = _BY_PROVIDER.get(self._provider(), PlainTableWriter)
        self._writer = kind(self.spec, self.relation, self._records)
        self._writer.start(spark, token)
        self.records_epoch, self.merges = self._writer.records_epoch, self._writer.merges

    def _provider(self) -> str:
        if not self._spark.catalog.tableExists(self.spec.table):
            return ""
        about = self._spark.sql(f"DESCRIBE TABLE EXTENDED {quoted(self.spec.table)}").collect()
        found = [row["data_type"] for row in about if row["col_name"] == "Provider"]
        return str(found[-1]).lower() if found else ""

    @property
    def is_there(self) -> bool:
        """Whether the table exists."""
        return self._writer.is_there

    def reached(self) -> int | None:
        """Return the last epoch that the table has of this sink."""
        return self._writer.reached()

    def written_epochs(self) -> set[int]:
        """Return the last epoch in the table."""
        return self._writer.written_epochs()

    def write_table(self, epoch: int, frame: Any) -> None:
        """Write the whole view."""
        self._writer.write_table(epoch, frame)

    def write_changes(self, epoch: int, frame: Any) -> None:
        """Write the changes of an epoch."""
        self._writer.write_changes(epoch, frame)

    def merge(self, epoch: int, frame: Any) -> None:
        """Merge changes into the table."""
        self._writer.merge(epoch, frame)


class PlainTableWriter(Writer):
    """A table of files, such as Parquet, or a new one of the session's default kind."""

    @property
    def is_there(self) -> bool:
        """Whether the table exists."""
        return bool(self._spark.catalog.tableExists(self.spec.table))

    def written_epochs(self) -> set[int]:
        """Return the last epoch in the table."""
        return last_epoch(self._spark, quoted(self.spec.table)) if self.is_there else set()

    def write_table(self, epoch: int, frame: Any) -> None:
        """Overwrite the rows of the table."""
        if not self.is_there:
            self._create(frame, list(self.spec.partition_by))
            return
        self._in_order(frame).write.insertInto(self.spec.table, overwrite=True)

    def write_changes(self, epoch: int, frame: Any) -> None:
        """Overwrite the partition of an epoch."""
        if not self.is_there:
            self._create(frame, [*self.spec.partition_by, EPOCH])
            return
        columns = self._spark.catalog.listColumns(self.spec.table)
        if not any(c.name == EPOCH and c.isPartition for c in columns):
            raise UsageError(
                f"the table `{self.spec.table}` is not partitioned by `{EPOCH}`, so changes could"
                " be there twice after a crash\n  help: create it with PARTITIONED BY"
                f" ({EPOCH}), or let the pipeline create it"
            )
        with settings(self._spark, _DYNAMIC):
            self._in_order(frame).write.insertInto(self.spec.table, overwrite=True)

    def _create(self, frame: Any, partition_by: list[str]) -> None:
        making = frame.write.options(**self.spec.options)
        if partition_by:
            making = making.partitionBy(*partition_by)
        making.saveAsTable(self.spec.table)

    def _in_order(self, frame: Any) -> Any:
        """Return a frame with the columns in the order of the table, as INSERT takes them."""
        there = self._spark.table(quoted(self.spec.table)).columns
        if sorted(there) != sorted(frame.columns):
            raise DataError(
                f"sink `{self.relation.name}`: the table `{self.spec.table}` has the columns"
                f" {', '.join(there)}, and not {', '.join(frame.columns)}"
            )
        return frame.select(*(column(name) for name in there))
