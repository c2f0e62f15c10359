"""Sinks: views and their changes, written by Spark after the commit, once for each epoch.

A sink is written after its epoch is durable. The state folder records the last epoch that it has
written. After a crash the sink catches up at the next start, from the changes that the placement
retains. Writing an epoch twice has the same result as writing it once:

    local files          written beside their target and renamed (sink_files.py)
    remote files         overwritten (sink_files.py)
    Delta, Iceberg       one commit, which names sink and epoch (sink_delta.py, sink_iceberg.py)
    JDBC                 one transaction, which also sets the epoch of the sink (sink_jdbc.py)
    catalog tables       as Delta or Iceberg; others are overwritten (sink_tables.py)
    Kafka                messages that name the epoch, possibly twice after a crash (sink_kafka.py)
    console, Python      called with the epoch, possibly twice after a crash

Tables of Delta, Iceberg and JDBC take the changes of a view, so the cost of an epoch follows its
changes. Other tables are rewritten as a whole.

If the target records an epoch, this one counts, and not that in the state folder: the process may
have ended between the two writes. A sink writes under a random *token*, which is recorded before
the first write. So it never mistakes the epochs of another state for its own.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.errors import UsageError, did_you_mean
from tidelog.io.tabular import Records
from tidelog.logic.program import Relation
from tidelog.spark.declared import Sink
from tidelog.spark.listing import is_local
from tidelog.spark.view_changes import EPOCH, OP


class Writer(ABC):
    """Writes one sink. There is a subclass for each format."""

    collects = False
    """Whether it is given Arrow tables instead of DataFrames."""
    records_epoch = False
    """Whether the target records the epoch that it has reached."""
    merges = False
    """Whether a table takes changes by `merge`."""

    def __init__(self, spec: Sink, relation: Relation, records: Records) -> None:
        self.spec, self.relation, self._records = spec, relation, records
        self.token = ""
        self._spark: Any = None
        names = [column.name for column in relation.columns]
        if spec.what == "changes":
            for name in names:
                if name in (OP, EPOCH):
                    raise UsageError(
                        f"changes of `{relation.name}` cannot be written: its column"
                        f" `{name}` has the name of a column of changes"
                        "\n  help: derive a view with another name for it"
                    )
        elif not names and not self.collects:
            raise UsageError(
                f"`{relation.name}` has no columns, so it cannot be a table"
                '\n  help: what = "changes" has the columns `op` and `epoch`'
            )
        for name in spec.partition_by:
            if name not in names:
                hint = did_you_mean(name, names)
                raise UsageError(
                    f"`partition_by` names `{name}`, which is not a column of `{relation}`"
                    + (f"\n  help: {hint}" if hint else "")
                )
        if spec.what == "table" and set(spec.partition_by) == set(names) and names:
            raise UsageError("`partition_by` cannot name all columns: files need one at least")

    def start(self, spark: Any, token: str) -> None:
        """Prepare for writing; `token` identifies what this sink writes."""
        self._spark, self.token = spark, token

    @property
    def where(self) -> str:
        """The target, for messages."""
        options = self.spec.options
        return self.spec.path or self.spec.table or options.get("dbtable") or self.spec.format

    @property
    def is_there(self) -> bool:
        """Whether the target of earlier writes still exists."""
        return True

    def reached(self) -> int | None:
        """Return the last epoch of this sink in the target; None if it is not recorded there."""
        return None

    def written_epochs(self) -> set[int]:
        """Return epochs whose changes are in the target, at least the last one."""
        return set()

    def has_all(self, epoch: int) -> bool:
        """Return whether all changes of an epoch are in the target; if not, remove the others."""
        return epoch in self.written_epochs()

    @property
    def takes_files(self) -> bool:
        """Whether changes can be given as Parquet files that Spark has written."""
        return False

    @abstractmethod
    def write_table(self, epoch: int, frame: Any) -> None:
        """Write all rows of the view."""

    @abstractmethod
    def write_changes(self, epoch: int, frame: Any) -> None:
        """Write the changes of an epoch."""

    def write_files(self, epoch: int, files: Sequence[Path]) -> None:
        """Write the changes of an epoch, which are in files; as `write_changes`."""
        raise NotImplementedError

    def merge(self, epoch: int, frame: Any) -> None:
        """Bring the table to an epoch by the net change since the epoch that it has reached."""
        raise NotImplementedError


class ConsoleWriter(Writer):
    """Prints the first rows to standard output."""

    collects = True
    most = 20

    def write_table(self, epoch: int, frame: pa.Table) -> None:
        """Print the first rows."""
        print(f"-- {self.relation.name} at epoch {epoch}: {frame.num_rows:,} rows")
        self._print(frame)

    def write_changes(self, epoch: int, frame: pa.Table) -> None:
        """Print the first changes."""
        print(f"-- {self.relation.name}, changes of epoch {epoch}: {frame.num_rows:,}")
        self._print(frame)

    def _print(self, table: pa.Table) -> None:
        print("\t".join(table.column_names))
        for row in table.slice(0, self.most).to_pylist():
            print("\t".join(map(str, row.values())))
        if table.num_rows > self.most:
            print(f".. and {table.num_rows - self.most:,} more")
        sys.stdout.flush()


class PythonWriter(Writer):
    """Calls a function with the epoch and an Arrow table."""

    collects = True

    def write_table(self, epoch: int, frame: pa.Table) -> None:
        """Call the function with the whole view."""
        assert self.spec.call is not None
        self.spec.call(epoch, frame)

    write_changes = write_table


def writer(spec: Sink, relation: Relation, records: Records) -> Writer:
    """Return the writer of a sink."""
    return _kind(spec)(spec, relation, records)


def _kind(spec: Sink) -> type[Writer]:
    match spec.format:
        case "console":
            return ConsoleWriter
        case "python":
            return PythonWriter
        case "delta":
            from tidelog.spark.sink_delta import DeltaWriter

            return DeltaWriter
        case "iceberg":
            from tidelog.spark.sink_iceberg import IcebergWriter

            return IcebergWriter
        case "jdbc":
            from tidelog.spark.sink_jdbc import JdbcWriter

            return JdbcWriter
        case "kafka":
            from tidelog.spark.sink_kafka import KafkaWriter

            return KafkaWriter
        case "webhook" | "lines":
            from tidelog.spark.sink_webhook import LinesWriter, WebhookWriter

            return WebhookWriter if spec.format == "webhook" else LinesWriter
        case "table":
            from tidelog.spark.sink_tables import CatalogWriter

            return CatalogWriter
    from tidelog.spark.sink_files import FileWriter, RemoteFileWriter

    return FileWriter if is_local(spec.path) else RemoteFileWriter
