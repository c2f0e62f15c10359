"""Decide what to write to a sink: the whole view, its changes since an epoch, or nothing.

Which epochs a sink is missing follows from the epoch in the target, if it records one, and from the
state folder (sink_state.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.errors import UsageError
from tidelog.spark.declared import Sink
from tidelog.spark.frames import passing
from tidelog.spark.jobs import describe, reason
from tidelog.spark.retries import outage
from tidelog.spark.selecting import Selecting
from tidelog.spark.sink_state import SinkState
from tidelog.spark.sinks import Writer
from tidelog.spark.view_changes import EPOCH, OP, ViewChange, as_insertions, net_frame, signed

if TYPE_CHECKING:
    from tidelog.spark.placements import Placement

_SMALL_FILES = 4
"""How many files of few rows a sink gets in an epoch, at most."""
FEW = 50_000
"""Rows up to which one task writes them, to one file."""
_SPARK = ("grpc", "py4j", "pyspark")  # where Spark's errors are defined


class SinkRun:
    """A declared sink that is ready to be written; decides what to write."""

    def __init__(
        self,
        name: str,
        writer: Writer,
        state: SinkState,
        pipeline: str = "",
        selecting: Selecting | None = None,
    ) -> None:
        """Take the parts of a sink; `selecting` is for that of a trigger."""
        self.name, self._writer, self._state = name, writer, state
        self._selecting = selecting
        self._pipeline = pipeline or "pipeline"
        self._spark: Any = None
        self._asked = False  # whether the epoch of the target was read since the last error
        self._reached: int | None = None
        self._is_here = False  # whether rows are in this process

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
    def takes_files(self) -> bool:
        """Whether changes can be given as Parquet files that Spark has written."""
        return self._writer.takes_files and self._selecting is None

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

    def begin_at(self, epoch: int) -> None:
        """Let a trigger that is new, or of another program, begin after an epoch.

        Other sinks begin with all rows.
        """
        state = self._state
        if self._selecting is None or (state.is_begun and not state.other_program):
            return
        state.renew()
        if epoch < 0:
            state.begin()  # it gets the first epoch, even if this process ends before
        else:
            state.wrote(epoch)

    def catch_up(self, placement: Placement) -> int:
        """Write missing epochs; return the number of rows."""
        self._is_here = placement.name == "driver"
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
        """Return the last epoch of the sink; the one in the target, if it records one."""
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
        if target and self._writer.records_epoch:
            self._reached = epoch
        self._state.wrote(epoch, self._reached)

    # --- tables ---

    @property
    def _merges(self) -> bool:
        """Whether the table takes changes; not if its columns have the names of theirs."""
        names = {column.name for column in self._writer.relation.columns}
        return self._writer.merges and not names & {OP, EPOCH}

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
        if known is not None and self._merges and placement.retains(view, known):
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
            raise self._foreign(known)
        rows = 0
        first = self._state.first
        if known is None and first is not None and first < epoch and self._writer.has_all(first):
            known = first  # it was written, and something failed before that was recorded
        if known is None:
            foreign = self._writer.written_epochs() - {epoch}
            if foreign:
                raise self._foreign(max(foreign))
            self._state.begin(epoch)
            # The first change inserts all rows, so that readers can start from nothing.
            rows = self._write(self._first(placement))
        else:
            for change in placement.change_frames(self._spark, view, known):
                rows += self._write(change)
        self._wrote(epoch, target=False)
        return rows

    def _foreign(self, epoch: int) -> UsageError:
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
        if self._selecting is not None:
            change = self._selecting.change(change, here=self._is_here)
        if self._writer.collects:
            self._writer.write_changes(change.epoch, change.table())
        elif self._writer.takes_files and _fit(change):
            self._writer.write_files(change.epoch, change.files)
        else:
            frame = change.frame()
            few = change.rows <= FEW
            self._writer.write_changes(change.epoch, frame.coalesce(1) if few else frame)
        if self._writer.records_epoch:
            self._reached = change.epoch
        return change.rows


def _fit(change: ViewChange) -> bool:
    """Return whether the files of a change can be those of a sink: not many small ones."""
    return bool(change.files) and (change.rows > FEW or len(change.files) <= _SMALL_FILES)


class _Doing:
    """Describes the jobs of a block, and reports its errors as errors of the sink."""

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
