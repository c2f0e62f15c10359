"""Do an epoch on the driver: check the rows that Spark has read, and commit what they change.

The counterpart for shards is in shard_routing.py and shard_epoch.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidelog.io.offsets import RowCounts
from tidelog.spark.bisection import RULE_ERRORS
from tidelog.spark.checking import BadRow, Checked
from tidelog.spark.epoch_changes import (
    DRIFT,
    Applied,
    EpochChanges,
    difference,
    net,
    note_bad_rows,
)
from tidelog.spark.epoch_input import EpochInput
from tidelog.spark.failing_rows import FailingRows
from tidelog.spark.placement_driver import DriverPlacement
from tidelog.spark.quarantine import Quarantine
from tidelog.spark.retention import Retention
from tidelog.spark.rule_errors import find_failing
from tidelog.spark.sources import Batch, PipelineSource
from tidelog.spark.stream import QUERY
from tidelog.spark.upserting import arrived

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class _CheckedEpoch:
    """The rows of an epoch, checked."""

    changes: EpochChanges
    parts: dict[str, list[Checked]] = field(default_factory=dict)
    """By relation, what sources of single changes have for it, in order."""
    bad: dict[str, list[BadRow]] = field(default_factory=dict)
    """Rows for the quarantine, by source."""


class DriverEpochs:
    """Does the epochs of a pipeline in this process."""

    def __init__(
        self, quarantine: Quarantine, retention: Sequence[Retention], on_rule_error: str
    ) -> None:
        self._quarantine, self._retention = quarantine, retention
        self._on_rule_error = on_rule_error

    def apply(
        self,
        placement: DriverPlacement,
        epoch: EpochInput,
        changes: EpochChanges,
        before_commit: Callable[[EpochInput], None],
    ) -> Applied | None:
        """Check the rows of an epoch, and commit them; None if nothing is new."""
        tables = epoch.tables()
        before_commit(epoch)
        failing = FailingRows()
        before = dict(changes.offsets)
        while True:
            checked = self._checked(placement, epoch, changes, tables, failing)
            if checked is None:
                return None
            try:
                self._quarantine.write(placement.epoch + 1, checked.bad)
                return placement.apply(changes)
            except RULE_ERRORS as error:
                if self._on_rule_error == "fail":
                    raise
                known = len(failing)
                for name, row, why in find_failing(changes, placement.probe, error):
                    failing.add(name, [(row, why)])
                if len(failing) == known:
                    raise
            changes.clear(before)

    def _checked(
        self,
        placement: DriverPlacement,
        epoch: EpochInput,
        changes: EpochChanges,
        tables: Mapping[int, pa.Table],
        failing: FailingRows,
    ) -> _CheckedEpoch | None:
        """Check the rows of an epoch, and note what they change; None if nothing is new."""
        checked_epoch = _CheckedEpoch(changes)
        has_news = QUERY in changes.offsets
        for source, batch in epoch.batches:
            checked = [
                source.checker.check(tables[p.tag], epoch.known_files, p.part.drift, failing)
                for p in epoch.parts
                if p.source is source and p.tag in tables
            ]
            has_news |= _add(checked_epoch, placement, source, batch, checked)
        if not has_news:
            return None
        for name, found in checked_epoch.parts.items():
            changes.inserted[name], changes.deleted[name] = net(found)
        changes.late = sum(own.apply(changes, placement) for own in self._retention)
        return checked_epoch


def _add(
    epoch: _CheckedEpoch,
    placement: DriverPlacement,
    source: PipelineSource,
    batch: Batch,
    checked: list[Checked],
) -> bool:
    """Add what a source has for an epoch; return whether it is news."""
    changes, name = epoch.changes, source.relation.name
    changed = False
    if source.spec.mode == "snapshot":  # the only source of its relation
        drift = next((part.drift for part in batch.parts if part.drift), "")
        if drift != placement.offsets(source.name).get(DRIFT, ""):
            changes.offsets[source.name] = {**changes.offsets[source.name], DRIFT: drift}
        if not drift:  # with drift, deletions are unknown: keep the relation
            inserted, deleted = difference(placement.given(name), checked)
            changes.inserted[name], changes.deleted[name] = inserted, deleted
            changed = len(inserted) + len(deleted) > 0
    elif source.upsert is not None:  # the only source, too
        came = arrived(checked)
        if came is not None:
            changes.upserts[name] = came
        changed = came is not None
    else:
        epoch.parts.setdefault(name, []).extend(checked)
        changed = any(len(part.rows) for part in checked)
    bad = [row for part in checked for row in part.bad]
    if source.spec.mode == "snapshot":
        note_bad_rows(changes, source.name, placement.offsets(source.name), len(bad))
    is_same = source.spec.mode == "snapshot" or not checked
    if is_same and not changed and not changes.offsets[source.name]:
        return False  # the same snapshot again, or nothing
    received = sum(part.received for part in checked)
    if received:
        changes.counts[source.name] = RowCounts(received, received - len(bad), len(bad))
    epoch.bad[source.name] = bad
    return True
