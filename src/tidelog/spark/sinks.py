"""Sinks: views and their changes, written after the commit, once for each epoch.

A sink is written when its epoch is durable. It remembers the last epoch that it has written, in the
state folder; what a crash has kept from it is caught up at the next start, from the log of the
database. Writing an epoch again leaves what writing it once does:

    a table in files     one file, replaced by renaming: whoever reads sees one whole view
    changes in files     one file for each epoch, named by it
    Delta                one commit, which names the epoch (delta.py)
    JDBC                 one transaction; epochs that are there are left out (jdbc.py)
    console, Python      told the epoch, and may be told it twice after a crash
"""

from __future__ import annotations

import hashlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tidelog.errors import UsageError
from tidelog.io.tabular import Records
from tidelog.logic.program import Relation
from tidelog.spark.declared import Sink
from tidelog.spark.files import file_name, read_json, remove_leftovers, replace_file, replace_text
from tidelog.spark.listing import is_local

if TYPE_CHECKING:
    from tidelog.engine.view import Change
    from tidelog.spark.placements import Placement

OP, EPOCH = "op", "epoch"


class Writer(ABC):
    """Writes one sink. Subclasses know where to."""

    def __init__(self, spec: Sink, relation: Relation, records: Records) -> None:
        self.spec, self.relation, self._records = spec, relation, records
        self._spark: Any = None
        if spec.what == "changes":
            for column in relation.columns:
                if column.name in (OP, EPOCH):
                    raise UsageError(
                        f"changes of `{relation.name}` cannot be written: its column"
                        f" `{column.name}` has the name of a column that changes have"
                        "\n  help: derive a view that calls it something else"
                    )

    def start(self, spark: Any) -> None:
        """Make ready to write."""
        self._spark = spark

    @property
    def is_there(self) -> bool:
        """Whether what was written before is still there."""
        return True

    def written_epochs(self) -> set[int]:
        """Return epochs of changes that are there, as far as can be told; the last one will do."""
        return set()

    @abstractmethod
    def write_table(self, epoch: int, table: pa.Table) -> None:
        """Write all rows of the view."""

    @abstractmethod
    def write_changes(self, epoch: int, table: pa.Table) -> None:
        """Write what an epoch has changed."""

    def changes_table(self, epoch: int, change: Change) -> pa.Table:
        """Return the rows of a change, with op and epoch."""
        rows = pa.concat_tables([change.deleted.to_arrow(), change.inserted.to_arrow()])
        return _with_signs(rows, epoch, len(change.deleted), len(change.inserted))

    def first_changes(self, epoch: int, table: pa.Table, size: int) -> pa.Table:
        """Return the rows of a view as a change that brings all of them."""
        return _with_signs(table, epoch, 0, size)


def _with_signs(rows: pa.Table, epoch: int, went: int, came: int) -> pa.Table:
    signs = pa.DictionaryArray.from_arrays(
        pa.array(np.repeat(np.array([0, 1], np.int32), [went, came])), pa.array(["-", "+"])
    )
    rows = rows.append_column(OP, signs.cast(pa.string()))
    return rows.append_column(EPOCH, pa.array(np.full(went + came, epoch, np.int64)))


class FileWriter(Writer):
    """Parquet, CSV or JSON files in a folder of this machine."""

    def start(self, spark: Any) -> None:
        """Remove what a writer that was killed has left."""
        super().start(spark)
        path = Path(self.spec.path)
        remove_leftovers(self._table_file.parent if self.spec.what == "table" else path)

    @property
    def _table_file(self) -> Path:
        path = Path(self.spec.path)
        suffix = f".{self.spec.format}"
        return path if path.suffix == suffix else path / f"part-00000{suffix}"

    @property
    def is_there(self) -> bool:
        """Whether the file of a table is there."""
        return self.spec.what != "table" or self._table_file.exists()

    def written_epochs(self) -> set[int]:
        """Return the epochs that have a file."""
        names = Path(self.spec.path).glob(f"epoch-*.{self.spec.format}")
        return {int(path.stem.removeprefix("epoch-")) for path in names}

    def write_table(self, epoch: int, table: pa.Table) -> None:
        """Put the view in the place of what was there."""
        replace_file(self._table_file, lambda path: self._write(path, table))

    def write_changes(self, epoch: int, table: pa.Table) -> None:
        """Write the file of an epoch."""
        target = Path(self.spec.path) / f"epoch-{epoch:012d}.{self.spec.format}"
        replace_file(target, lambda path: self._write(path, table))

    def _write(self, path: Path, table: pa.Table) -> None:
        if self.spec.format == "parquet":
            import pyarrow.parquet as pq

            pq.write_table(table, path)
        elif self.spec.format == "csv":
            from pyarrow import csv

            header = self.spec.options.get("header", "true").lower() == "true"
            delimiter = self.spec.options.get("sep", ",")
            csv.write_csv(
                _flat(table), path, csv.WriteOptions(include_header=header, delimiter=delimiter)
            )
        else:
            with open(path, "w", encoding="utf-8") as lines:
                for batch in table.to_batches(max_chunksize=10_000):
                    for row in batch.to_pylist():
                        lines.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _flat(table: pa.Table) -> pa.Table:
    """Return a table without columns that have parts, which CSV cannot hold: those are JSON."""
    for i, column in enumerate(table.schema):
        if pa.types.is_nested(column.type):
            texts = [json.dumps(v, ensure_ascii=False, default=str) for v in table[i].to_pylist()]
            table = table.set_column(i, column.name, pa.array(texts, pa.string()))
    return table


class SparkWriter(Writer):
    """Files wherever Spark can write. Replacing a table is not one step there."""

    def write_table(self, epoch: int, table: pa.Table) -> None:
        """Write the view over what was there."""
        self._write(table, self.spec.path)

    def write_changes(self, epoch: int, table: pa.Table) -> None:
        """Write the folder of an epoch."""
        self._write(table, f"{self.spec.path.rstrip('/')}/{EPOCH}-{epoch:012d}")

    def _write(self, table: pa.Table, path: str) -> None:
        from tidelog.spark.frames import to_frame

        frame = to_frame(self._spark, table)
        frame.write.format(self.spec.format).options(**self.spec.options).mode("overwrite").save(
            path
        )


class ConsoleWriter(Writer):
    """Prints to standard output, as much as a reader would look at."""

    most = 20

    def write_table(self, epoch: int, table: pa.Table) -> None:
        """Print the first rows."""
        print(f"-- {self.relation.name} at epoch {epoch}: {table.num_rows:,} rows")
        self._print(table)

    def write_changes(self, epoch: int, table: pa.Table) -> None:
        """Print the first changes."""
        print(f"-- {self.relation.name}, changes of epoch {epoch}: {table.num_rows:,}")
        self._print(table)

    def _print(self, table: pa.Table) -> None:
        print("\t".join(table.column_names))
        for row in table.slice(0, self.most).to_pylist():
            print("\t".join(map(str, row.values())))
        if table.num_rows > self.most:
            print(f".. and {table.num_rows - self.most:,} more")
        sys.stdout.flush()


class PythonWriter(Writer):
    """Calls a function with the epoch and an Arrow table."""

    def write_table(self, epoch: int, table: pa.Table) -> None:
        """Call it with the whole view."""
        assert self.spec.call is not None
        self.spec.call(epoch, table)

    write_changes = write_table


def writer(spec: Sink, relation: Relation, records: Records) -> Writer:
    """Return the writer of a sink."""
    match spec.format:
        case "console":
            return ConsoleWriter(spec, relation, records)
        case "python":
            return PythonWriter(spec, relation, records)
        case "delta":
            from tidelog.spark.delta import DeltaWriter

            return DeltaWriter(spec, relation, records)
        case "jdbc":
            from tidelog.spark.jdbc import JdbcWriter

            return JdbcWriter(spec, relation, records)
    if is_local(spec.path):
        return FileWriter(spec, relation, records)
    return SparkWriter(spec, relation, records)


class SinkState:
    """The last epoch that a sink has written, in a file of the state folder."""

    def __init__(self, folder: Path, name: str, spec: Sink, program: str) -> None:
        self._file = folder / f"{file_name(name)}.json"
        self._program = hashlib.blake2b(program.strip().encode(), digest_size=16).hexdigest()
        where = spec.path or " ".join(spec.options.get(key, "") for key in ("url", "dbtable"))
        self._is = {"view": spec.view, "what": spec.what, "format": spec.format, "where": where}
        known: Mapping[str, Any] = read_json(self._file) or {}
        same = all(known.get(key) == value for key, value in self._is.items())
        self.epoch: int | None = known.get("epoch") if same else None
        self.other_program = self.epoch is not None and known.get("program") != self._program

    def wrote(self, epoch: int) -> None:
        """Remember that all epochs up to this one are written."""
        known = {**self._is, "program": self._program, "epoch": epoch}
        replace_text(self._file, json.dumps(known) + "\n")
        self.epoch, self.other_program = epoch, False


class SinkRun:
    """A sink at work: decides what is to be written."""

    def __init__(self, name: str, writer: Writer, state: SinkState) -> None:
        self.name, self._writer, self._state = name, writer, state

    @property
    def view(self) -> str:
        """The view that goes here."""
        return self._writer.spec.view

    @property
    def epoch(self) -> int | None:
        """The last epoch that is written."""
        return self._state.epoch

    def start(self, spark: Any) -> None:
        """Make ready to write."""
        self._writer.start(spark)
        if self._state.other_program and self._writer.spec.what == "changes":
            raise UsageError(
                f"sink `{self.name}`: the program is another one by now, so its changes cannot go"
                " on from those that are written\n  help: give the sink another path"
            )
        if self._state.other_program or not self._writer.is_there:
            self._state.epoch = None

    def catch_up(self, placement: Placement, *, tables: bool = True) -> int:
        """Write what the sink lacks; return the number of rows. Tables can wait for later."""
        spec = self._writer.spec
        if spec.what == "table":
            return self._table(placement) if tables else 0
        return self._changes(placement)

    def _table(self, placement: Placement) -> int:
        epoch, view = placement.epoch, self._writer.spec.view
        if self._state.epoch == epoch:
            return 0
        known = self._state.epoch
        # Nothing to write if nothing has changed, as far as the log still tells.
        unchanged = known is not None and placement.unchanged(view, known)
        rows = 0
        if not unchanged:
            table = placement.table(view)
            self._writer.write_table(epoch, table)
            rows = table.num_rows
        self._state.wrote(epoch)
        return rows

    def _changes(self, placement: Placement) -> int:
        epoch, view = placement.epoch, self._writer.spec.view
        known = self._state.epoch
        if known == epoch:
            return 0
        rows = 0
        if known is None:
            strange = self._writer.written_epochs() - {epoch}
            if strange:
                raise UsageError(
                    f"sink `{self.name}`: there are changes of epoch {max(strange)} already, which"
                    " this pipeline has not written\n  help: remove them, or name another path"
                )
            # Whoever follows the changes begins with what is there.
            table = placement.table(view)
            rows += self._write(
                epoch, self._writer.first_changes(epoch, table, placement.size(view))
            )
        else:
            for number, change in placement.changes(view, known):
                rows += self._write(number, self._writer.changes_table(number, change))
        self._state.wrote(epoch)
        return rows

    def _write(self, epoch: int, table: pa.Table) -> int:
        if table.num_rows:
            self._writer.write_changes(epoch, table)
        return int(table.num_rows)
