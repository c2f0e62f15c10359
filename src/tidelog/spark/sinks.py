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

A table of Delta, Iceberg or JDBC takes the changes of the view, so that an epoch costs what it
changes. Other tables are written as a whole.

What a target says of itself counts for more than the record in the state folder: the process may
have ended between the two. A sink writes under a random *token*, which is recorded before the first
write. So epochs of another state are never taken for its own.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelog.errors import UsageError, did_you_mean
from tidelog.io.atomic import file_name, read_json, replace_text
from tidelog.io.tabular import Records
from tidelog.logic.program import Relation
from tidelog.spark.declared import Sink
from tidelog.spark.frames import passing
from tidelog.spark.jobs import describe, reason
from tidelog.spark.listing import is_local
from tidelog.spark.retries import outage
from tidelog.spark.view_changes import EPOCH, OP, ViewChange, as_insertions, net_frame, signed

if TYPE_CHECKING:
    from tidelog.spark.placements import Placement

FEW = 50_000
"""Rows up to which one task writes them, to one file."""
_SPARK = ("grpc", "py4j", "pyspark")  # where Spark's errors are defined


class Writer(ABC):
    """Writes one sink; subclasses are for formats."""

    collects = False
    """Whether it is given Arrow tables instead of DataFrames."""

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
    def tells(self) -> bool:
        """Whether the target records the epoch that it has reached."""
        return False

    @property
    def merges(self) -> bool:
        """Whether a table takes changes by `merge`."""
        return False

    @property
    def where(self) -> str:
        """The target, for messages."""
        options = self.spec.options
        return self.spec.path or self.spec.table or options.get("dbtable") or self.spec.format

    @property
    def is_there(self) -> bool:
        """Whether what was written before still exists."""
        return True

    def reached(self) -> int | None:
        """Return the last epoch that the target has of this sink; None if it does not say."""
        return None

    def written_epochs(self) -> set[int]:
        """Return epochs whose changes are in the target, at least the last one."""
        return set()

    @abstractmethod
    def write_table(self, epoch: int, frame: Any) -> None:
        """Write all rows of the view."""

    @abstractmethod
    def write_changes(self, epoch: int, frame: Any) -> None:
        """Write the changes of an epoch."""

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
        """Call it with the whole view."""
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
        case "table":
            from tidelog.spark.sink_tables import CatalogWriter

            return CatalogWriter
    from tidelog.spark.sink_files import FileWriter, RemoteFileWriter

    return FileWriter if is_local(spec.path) else RemoteFileWriter


class SinkState:
    """What a sink has written, in a file of the state folder. It holds no address and no secret."""

    def __init__(self, folder: Path, name: str, spec: Sink, program: str) -> None:
        self._file = folder / f"{file_name(name)}.json"
        self._program = _hash(program.strip())
        options = [spec.options.get(key, "") for key in ("url", "dbtable", "topic")]
        where = [spec.path, spec.table, *options, spec.options.get("kafka.bootstrap.servers", "")]
        self._is = {
            "view": spec.view,
            "what": spec.what,
            "format": spec.format,
            "where": _hash(json.dumps(where)),
        }
        known: Mapping[str, Any] = read_json(self._file) or {}
        # An earlier version recorded the address itself.
        plain = spec.path or " ".join(options[:2])
        if known.get("where") == plain:
            known = {**known, "where": self._is["where"]}
        same = all(known.get(key) == value for key, value in self._is.items())
        if not same:
            known = {}
        self.epoch: int | None = known.get("epoch")
        self.reached: int | None = known.get("reached")
        """The epoch of the target when `epoch` was recorded; it may not have changed since."""
        self.token: str = known.get("token") or secrets.token_hex(8)
        self.other_program = self.epoch is not None and known.get("program") != self._program

    def renew(self) -> None:
        """Forget what was written: the next write is the first one of a new target."""
        self.epoch = self.reached = None
        self.token, self.other_program = secrets.token_hex(8), False

    def begin(self) -> None:
        """Record the token, before anything is written under it."""
        self._write()

    def wrote(self, epoch: int, reached: int | None = None) -> None:
        """Record that all epochs up to this one are written."""
        self.epoch, self.reached, self.other_program = epoch, reached, False
        self._write()

    def _write(self) -> None:
        known = {
            **self._is,
            "program": self._program,
            "epoch": self.epoch,
            "reached": self.reached,
            "token": self.token,
        }
        replace_text(self._file, json.dumps(known) + "\n")


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class SinkRun:
    """A declared sink that is ready to be written; decides what to write."""

    def __init__(self, name: str, writer: Writer, state: SinkState, pipeline: str = "") -> None:
        self.name, self._writer, self._state = name, writer, state
        self._pipeline = pipeline or "pipeline"
        self._spark: Any = None
        self._asked = False  # whether the target was asked how far it is, since the last error
        self._reached: int | None = None

    @property
    def view(self) -> str:
        """The name of the view."""
        return self._writer.spec.view

    @property
    def spec(self) -> Sink:
        """The declaration."""
        return self._writer.spec

    @property
    def is_table(self) -> bool:
        """Whether the whole view is written; else its changes."""
        return self.spec.what == "table"

    @property
    def epoch(self) -> int | None:
        """The last epoch written."""
        return self._state.epoch

    def start(self, spark: Any) -> None:
        """Prepare for writing."""
        self._spark = spark
        writer, state = self._writer, self._state
        if state.other_program and writer.spec.what == "changes":
            raise UsageError(
                f"sink `{self.name}`: the program has changed, so its changes cannot continue those"
                " already written\n  help: give the sink another path"
            )
        with self._doing("start"):
            writer.start(spark, state.token)
            if state.other_program or not writer.is_there:
                self._renew()

    def catch_up(self, placement: Placement) -> int:
        """Write missing epochs; return the number of rows."""
        with self._doing(f"epoch {placement.epoch}"), passing():
            try:
                return self._table(placement) if self.is_table else self._changes(placement)
            except BaseException:
                self._asked = False
                raise

    def write_again(self, placement: Placement) -> int:
        """Rewrite the whole view, whatever the target has; return the number of rows."""
        with self._doing(f"epoch {placement.epoch}"):
            self._renew()
        return self.catch_up(placement)

    def _doing(self, step: str) -> _Doing:
        text = f"tidelog {self._pipeline} · {step} · sink {self.name}"
        return _Doing(self._spark, self.name, self._writer, text)

    def _renew(self) -> None:
        self._state.renew()
        self._writer.start(self._spark, self._state.token)
        self._asked = False

    def _known(self) -> int | None:
        """Return the epoch that the sink is at: that of the target, if it says so."""
        writer, state = self._writer, self._state
        if not self._asked:
            self._reached = writer.reached()
            self._asked = True
        if self._reached is None:
            return None if writer.merges and writer.spec.what == "table" else state.epoch
        if self._reached == state.reached and state.epoch is not None:
            return max(self._reached, state.epoch)  # later epochs have changed nothing
        return self._reached

    def _wrote(self, epoch: int, *, target: bool) -> None:
        """Record an epoch; `target` says whether it was written to the target."""
        if target and self._writer.tells:
            self._reached = epoch
        self._state.wrote(epoch, self._reached)

    # --- tables ---

    def _table(self, placement: Placement) -> int:
        epoch, view = placement.epoch, self.view
        known = self._known()
        if known is not None and known > epoch:
            self._renew()  # the state is older than the target: begin again
            known = self._known()
        if known == epoch:
            if self._state.epoch != epoch:
                self._wrote(epoch, target=False)
            return 0
        # There is nothing to write if the view is known not to have changed.
        if known is not None and placement.unchanged(view, known):
            self._wrote(epoch, target=False)
            return 0
        if known is not None and self._writer.merges and placement.retains(view, known):
            changes = [c for c in placement.change_frames(self._spark, view, known) if c.rows]
            rows = sum(change.rows for change in changes)
            if rows <= FEW or rows < placement.size(view):
                frame = net_frame(changes, self._writer.relation)
                self._writer.merge(epoch, frame.coalesce(1) if rows <= FEW else frame)
                self._wrote(epoch, target=True)
                return rows
        self._state.begin()
        rows = self._whole(placement)
        self._wrote(epoch, target=True)
        return rows

    def _whole(self, placement: Placement) -> int:
        if self._writer.collects:
            table = placement.table(self.view)
            self._writer.write_table(placement.epoch, table)
            return int(table.num_rows)
        rows = placement.size(self.view)
        frame = placement.frame(self._spark, self.view, together=rows <= FEW)
        self._writer.write_table(placement.epoch, frame)
        return rows

    # --- changes ---

    def _changes(self, placement: Placement) -> int:
        epoch, view = placement.epoch, self.view
        known = self._known()
        if known == epoch and self._state.epoch == epoch:
            return 0
        if known is not None and known > epoch:
            raise self._strange(known)
        rows = 0
        if known is None:
            strange = self._writer.written_epochs() - {epoch}
            if strange:
                raise self._strange(max(strange))
            self._state.begin()
            # The first change inserts all rows, so that readers can start from nothing.
            rows = self._write(self._first(placement))
        else:
            for change in placement.change_frames(self._spark, view, known):
                rows += self._write(change)
        self._wrote(epoch, target=False)
        return rows

    def _strange(self, epoch: int) -> UsageError:
        return UsageError(
            f"sink `{self.name}` already has changes of epoch {epoch}, which this"
            " pipeline has not written\n  help: remove them, or give the sink another path"
        )

    def _first(self, placement: Placement) -> ViewChange:
        epoch, view = placement.epoch, self.view
        rows = placement.size(view)

        def frame() -> Any:
            return as_insertions(placement.frame(self._spark, view, together=rows <= FEW), epoch)

        return ViewChange(epoch, rows, frame, lambda: signed(placement.table(view), epoch, 0, rows))

    def _write(self, change: ViewChange) -> int:
        if not change.rows:
            return 0
        if self._writer.collects:
            self._writer.write_changes(change.epoch, change.table())
        else:
            frame = change.frame()
            few = change.rows <= FEW
            self._writer.write_changes(change.epoch, frame.coalesce(1) if few else frame)
        if self._writer.tells:
            self._reached = change.epoch
        return change.rows


class _Doing:
    """Describes the jobs of a block, and tells of its errors as those of the sink."""

    def __init__(self, spark: Any, name: str, writer: Writer, text: str) -> None:
        self._name, self._writer = name, writer
        self._described = describe(spark, text)

    def __enter__(self) -> None:
        self._described.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        self._described.__exit__(None, None, None)
        if self._writer.collects or not isinstance(error, Exception):
            return  # it comes from the user's function
        cause = error.__cause__ or error.__context__
        if isinstance(cause, OSError):
            error = cause  # a path that cannot be written
        if type(error).__module__.partition(".")[0] in _SPARK or isinstance(error, OSError):
            raise outage(
                f"sink `{self._name}`: Spark cannot write to `{self._writer.where}`:"
                f" {reason(error, self._writer.spec.options)}",
                error,
            ) from error
