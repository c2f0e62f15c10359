"""Views in a database, by Spark's JDBC writer.

A change feed is appended by one task, which is one transaction. The epochs that are there already
are asked for once, at the start. A table is truncated and filled again: a reader in between sees
less than the view, and a crash in between is made good by the next start.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidelog.errors import DataError
from tidelog.spark.frames import to_frame
from tidelog.spark.sinks import EPOCH, Writer
from tidelog.spark.sources import first_line


class JdbcWriter(Writer):
    """A table of a database."""

    _last: int | None = None

    def start(self, spark: Any) -> None:
        """Look which epoch of the changes is the last one there."""
        super().start(spark)
        if self.spec.what != "changes":
            return
        try:
            found = spark.read.format("jdbc").options(**self.spec.options).load()
        except Exception:
            return  # no such table yet; an address that is wrong shows at the first write
        if EPOCH in found.columns:
            self._last = found.selectExpr(f"max({EPOCH}) as last").collect()[0]["last"]

    def written_epochs(self) -> set[int]:
        """Return the last epoch in the table."""
        return set() if self._last is None else {self._last}

    def write_table(self, epoch: int, table: pa.Table) -> None:
        """Put the view in the place of what was there; the table itself stays."""
        self._write(table, "overwrite", truncate="true")

    def write_changes(self, epoch: int, table: pa.Table) -> None:
        """Append the changes of an epoch, unless they are there."""
        if self._last is None or epoch > self._last:
            self._write(table, "append")

    def _write(self, table: pa.Table, mode: str, **more: str) -> None:
        options = {**self.spec.options, **more}
        frame = to_frame(self._spark, table).coalesce(1)
        try:
            frame.write.format("jdbc").options(**options).mode(mode).save()
        except Exception as error:
            raise DataError(
                f"sink `{self.relation.name}`: Spark cannot write to"
                f" `{options['dbtable']}`: {first_line(error)}"
            ) from error
