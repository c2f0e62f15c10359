"""Views in tables that take changes by MERGE, as those of Delta and Iceberg do.

A table is created with the whole view. After that an epoch is one MERGE of its changes, so that it
costs what it changes. Each commit of the table names the sink and the epoch. How it does is what
the formats differ in: see sink_delta.py and sink_iceberg.py.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tidelog.spark.jobs import settings
from tidelog.spark.sinks import Writer
from tidelog.spark.table_sql import last_epoch, merge_statement, quoted


class MergedTableWriter(Writer):
    """A table of a view that follows it by MERGE, or a table of its changes."""

    records_epoch = merges = True

    @property
    def _name(self) -> str:
        """The table as SQL names it."""
        return quoted(self.spec.table)

    @abstractmethod
    def _merge_settings(self, epoch: int) -> dict[str, str]:
        """Return the settings of Spark by which a MERGE notes the sink and the epoch."""

    def written_epochs(self) -> set[int]:
        """Return the last epoch in the table."""
        return last_epoch(self._spark, self._name) if self.is_there else set()

    def merge(self, epoch: int, frame: Any) -> None:
        """Merge changes into the table; a second time, this changes nothing."""
        names = [column.name for column in self.relation.columns]
        noted = settings(self._spark, self._merge_settings(epoch))
        with noted, merge_statement(frame, self._name, names) as statement:
            self._spark.sql(statement).collect()
