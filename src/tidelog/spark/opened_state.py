"""The state of a pipeline while it is open: the lock of its folder, and the placement in it.

Both are taken when they are first needed, so that a pipeline can be declared and checked while
another process runs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidelog.durable.lock import WriterLock
from tidelog.logic.program import Program
from tidelog.sharding.key_relations import Upsert
from tidelog.spark.placement_driver import DriverPlacement, with_offsets
from tidelog.spark.placement_sharded import ShardedPlacement
from tidelog.spark.placements import Chosen, Placement
from tidelog.spark.state_folder import QUARANTINE, lock


class OpenedState:
    """The state of a pipeline."""

    def __init__(
        self,
        folder: Path,
        chosen: Chosen,
        program: Program,
        views: Sequence[str],
        upserts: Sequence[Upsert],
        on_program_change: str,
        retain_epochs: int,
        on_rule_error: str,
        taken: Sequence[str] = (),
    ) -> None:
        """`program` has the relations that upserts need; changes of `views` are retained.

        Sinks can take those of `taken` as files of Spark.
        """
        self._folder, self._chosen, self._program = folder, chosen, program
        self._views, self._upserts = tuple(views), tuple(upserts)
        self._taken = tuple(taken)
        self._on_program_change, self._retain_epochs = on_program_change, retain_epochs
        self._on_rule_error = on_rule_error
        self._lock: WriterLock | None = None
        self._placement: Placement | None = None

    def __call__(self) -> Placement:
        """Return the placement; open it if it is closed."""
        if self._lock is None:
            self._lock = lock(self._folder)
        if self._placement is None:
            self._placement = self._open()
        return self._placement

    def _open(self) -> Placement:
        if self._chosen.name == "sharded":
            return ShardedPlacement(
                self._program, self._chosen.folder, self._chosen.sides, self._retain_epochs,
                self._views, self._folder / QUARANTINE, upserts=self._upserts,
                finds_failing=self._on_rule_error == "quarantine", taken=self._taken,
                migrates=self._on_program_change == "migrate",
            )  # fmt: skip
        return DriverPlacement(
            with_offsets(self._program), self._chosen.folder, self._on_program_change,
            self._retain_epochs, upserts=self._upserts,
        )  # fmt: skip

    def close(self) -> None:
        """Sync everything to disk, and release the lock."""
        if self._placement is not None:
            self._placement.close()
            self._placement = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None
