"""Views in Delta tables, by Delta's own connector.

A table is created with the whole view. After that an epoch is one MERGE of its changes, so Delta
writes a few rows, and marks deleted ones in deletion vectors. Changes are appended.

Each commit is a *transaction* of Delta, with the token of the sink as its application and the epoch
as its version. Delta skips a transaction that it has already, also if the first one commits while
the second one runs. The commit's user metadata has the same, to be read again.
"""

from __future__ import annotations

import json
import os
from typing import Any

from tidelog.errors import UsageError
from tidelog.spark.jobs import condition_of
from tidelog.spark.sink_merged import MergedTableWriter
from tidelog.spark.table_sql import quoted

_NOT_THERE = (
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "DELTA_TABLE_NOT_FOUND",
    "PATH_NOT_FOUND",
    "SCHEMA_NOT_FOUND",
    "TABLE_OR_VIEW_NOT_FOUND",
)
_NO_CONNECTOR = ("DATA_SOURCE_NOT_FOUND", "UNSUPPORTED_DATASOURCE_FOR_DIRECT_QUERY")
_APP, _VERSION = "txnAppId", "txnVersion"
_CONF = "spark.databricks.delta."
_HISTORY = 100  # commits, of others as well, among which the last one of a sink is looked for


class DeltaWriter(MergedTableWriter):
    """A Delta table of a view, or of its changes."""

    @property
    def _name(self) -> str:
        """The table as SQL names it."""
        if self.spec.table:
            return quoted(self.spec.table)
        return "delta.`" + self._path.replace("`", "``") + "`"

    @property
    def _path(self) -> str:
        """The path with its scheme, whatever the default file system of Spark is."""
        path = self.spec.path
        return path if "://" in path else f"file://{os.path.abspath(path)}"

    @property
    def is_there(self) -> bool:
        """Whether the table exists."""
        try:
            self._spark.sql(f"DESCRIBE DETAIL {self._name}").collect()
            return True
        except Exception as error:
            if condition_of(error) in _NO_CONNECTOR:
                raise UsageError(
                    "this session of Spark has no connector for Delta tables\n  help: let the"
                    " pipeline open its own session, or start this one with the settings of"
                    " `tidelog.spark.connectors.settings_for`"
                ) from None
            if condition_of(error) in _NOT_THERE:
                return False
            raise  # an outage does not mean that there is nothing

    def reached(self) -> int | None:
        """Return the epoch of the last commit of this sink."""
        if not self.is_there:
            return None
        history = self._spark.sql(f"DESCRIBE HISTORY {self._name} LIMIT {_HISTORY}")
        for row in history.select("userMetadata").collect():
            if (found := _told(row["userMetadata"])).get("tidelog") == self.token:
                return int(found["epoch"])
        return None

    def write_table(self, epoch: int, frame: Any) -> None:
        """Write the whole view as a new version."""
        options = {"overwriteSchema": "true", "delta.enableDeletionVectors": "true"}
        self._save(epoch, frame, "overwrite", options)

    def write_changes(self, epoch: int, frame: Any) -> None:
        """Append the changes of an epoch, unless they are there."""
        self._save(epoch, frame, "append", {})

    def _merge_settings(self, epoch: int) -> dict[str, str]:
        return {
            f"{_CONF}write.{_APP}": self.token,
            f"{_CONF}write.{_VERSION}": str(epoch),
            f"{_CONF}commitInfo.userMetadata": self._marked(epoch),
        }

    def _save(self, epoch: int, frame: Any, mode: str, options: dict[str, str]) -> None:
        options = {**options, **self.spec.options, "userMetadata": self._marked(epoch)}
        options |= {_APP: self.token, _VERSION: str(epoch)}
        making = frame.write.format("delta").mode(mode).options(**options)
        if self.spec.partition_by:
            making = making.partitionBy(*self.spec.partition_by)
        if self.spec.table:
            making.saveAsTable(self.spec.table)
        else:
            making.save(self._path)

    def _marked(self, epoch: int) -> str:
        return json.dumps({"tidelog": self.token, "view": self.relation.name, "epoch": epoch})


def _told(text: str | None) -> dict[str, Any]:
    """Return what a sink has noted with a commit; nothing if the commit is not one of a sink."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
