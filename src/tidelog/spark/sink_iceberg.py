"""Views in Iceberg tables, by Iceberg's own connector: docs/pipelines.md names jar and settings.

A table is created with the whole view. After that an epoch is one MERGE of its changes, which
writes new rows and the positions of deleted ones. The changes of an epoch replace those rows of the
table that have the same epoch, so that writing them twice has the result of writing them once.

Each snapshot has the token of the sink and the epoch among its properties.
"""

from __future__ import annotations

from typing import Any

from tidelog.errors import UsageError
from tidelog.spark.jobs import condition_of
from tidelog.spark.sink_merged import MergedTableWriter
from tidelog.spark.table_sql import column
from tidelog.spark.view_changes import EPOCH

_TOKEN, _AT = "tidelog-sink", "tidelog-epoch"
_OPTION = "snapshot-property."
_CONF = "spark.sql.iceberg.snapshot-property."
_PROPERTIES = {
    "format-version": "2",  # the first one with deleted positions
    "write.delete.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
}


class IcebergWriter(MergedTableWriter):
    """An Iceberg table of a view, or of its changes."""

    def start(self, spark: Any, token: str) -> None:
        """Check before the first epoch that the catalog exists."""
        super().start(spark, token)
        try:
            self._spark.catalog.tableExists(self.spec.table)
        except Exception as error:
            name = self.spec.table.partition(".")[0]
            if "CATALOG" in condition_of(error) or "ClassNotFound" in str(error):
                raise UsageError(
                    f"this session of Spark has no catalog `{name}` of Iceberg"
                    f'\n  help: spark = {{ "spark.sql.catalog.{name}" ='
                    ' "org.apache.iceberg.spark.SparkCatalog", .. }; docs/pipelines.md has an'
                    " example"
                ) from None
            raise

    @property
    def is_there(self) -> bool:
        """Whether the table exists."""
        return bool(self._spark.catalog.tableExists(self.spec.table))

    def reached(self) -> int | None:
        """Return the epoch of the last snapshot of this sink that the table builds on."""
        if not self.is_there:
            return None
        found = self._spark.sql(
            f"SELECT s.summary['{_AT}'] AS epoch FROM {self._name}.history AS h"
            f" JOIN {self._name}.snapshots AS s ON h.snapshot_id = s.snapshot_id"
            f" WHERE h.is_current_ancestor AND s.summary['{_TOKEN}'] = '{self.token}'"
            " ORDER BY h.made_current_at DESC LIMIT 1"
        ).collect()
        return int(found[0]["epoch"]) if found else None

    def write_table(self, epoch: int, frame: Any) -> None:
        """Write the whole view as a new version."""
        self._created(frame, epoch).createOrReplace()

    def write_changes(self, epoch: int, frame: Any) -> None:
        """Write the changes of an epoch; replace those with the same number."""
        from pyspark.sql import functions as F

        if not self.is_there:
            self._created(frame, epoch).create()
        else:
            self._marked(frame.writeTo(self.spec.table), epoch).overwrite(F.col(EPOCH) == epoch)

    def _merge_settings(self, epoch: int) -> dict[str, str]:
        return {_CONF + _TOKEN: self.token, _CONF + _AT: str(epoch)}

    def _created(self, frame: Any, epoch: int) -> Any:
        from pyspark.sql import functions as F

        making = self._marked(frame.writeTo(self.spec.table).using("iceberg"), epoch)
        for name, value in {**_PROPERTIES, **self.spec.options}.items():
            making = making.tableProperty(name, value)
        if self.spec.partition_by:
            making = making.partitionedBy(*(F.col(column(n)) for n in self.spec.partition_by))
        return making

    def _marked(self, making: Any, epoch: int) -> Any:
        making = making.option(_OPTION + _TOKEN, self.token)
        return making.option(_OPTION + _AT, str(epoch))
