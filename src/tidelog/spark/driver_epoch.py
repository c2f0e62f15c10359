"""Do an epoch on the driver: check the rows that Spark has read, and commit what they change.

The counterpart for shards is in shard_routing.py and shard_epoch.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidelog.io.offsets import RowCounts
from tidelog.spark.checking import BadRow, Checked
from tidelog.spark.epoch_changes import Applied, EpochChanges, difference, net
from tidelog.spark.epoch_input import EpochInput
from tidelog.spark.placement_driver import DriverPlacement
from tidelog.spark.placement_sharded import DRIFT
from tidelog.spark.quarantine import Quarantine
from tidelog.spark.retention import Retention
from tidelog.spark.rule_errors import RULE_ERRORS, Culprits, quarantine_culprits
from tidelog.spark.sources import Batch, PipelineSource
from tidelog.spark.stream import QUERY
from tidelog.spark.upserting import arrived


@dataclass
class _CheckedEpoch:
    """The rows of an epoch, checked."""

    changes: EpochChanges
    by_source: list[tuple[PipelineSource, list[Checked]]] = field(default_factory=list)
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
        checked_epoch = _CheckedEpoch(changes)
        has_news = QUERY in changes.offsets
        for source, batch in epoch.batches:
            checked = [
                source.checker.check(tables[p.tag], epoch.known_files, p.part.drift)
                for p in epoch.parts
                if p.source is source and p.tag in tables
            ]
            has_news |= _add(checked_epoch, placement, source, batch, checked)
        if not has_news:
            return None
        for name, found in checked_epoch.parts.items():
            changes.inserted[name], changes.deleted[name] = net(found)
        changes.late = sum(own.apply(changes, placement) for own in self._retention)
        return self._commit(placement, checked_epoch)

    def _commit(self, placement: DriverPlacement, epoch: _CheckedEpoch) -> Applied:
        """Commit an epoch, without the rows on which a rule fails if the pipeline says so."""
        changes = epoch.changes
        try:
            self._quarantine.write(placement.epoch + 1, epoch.bad)
            return placement.apply(changes)
        except RULE_ERRORS as error:
            if self._on_rule_error == "fail":
                raise
            culprits = Culprits(changes, placement.probe, error)
            changes.inserted = culprits.find().inserted
            if not culprits.reasons:
                raise  # rows of upserts, which are not looked for
            quarantine_culprits(culprits, changes, epoch.by_source, epoch.bad)
        self._quarantine.write(placement.epoch + 1, epoch.bad)
        return placement.apply(changes)


def _add(
    epoch: _CheckedEpoch,
    placement: DriverPlacement,
    source: PipelineSource,
    batch: Batch,
    checked: list[Checked],
) -> bool:
    """Add what a source has for an epoch; return whether it is news."""
    changes, name = epoch.changes, source.relation.name
    epoch.by_source.append((source, checked))
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
    is_same = source.spec.mode == "snapshot" or not checked
    if is_same and not changed and not changes.offsets[source.name]:
        return False  # the same snapshot again, or nothing
    bad = [row for part in checked for row in part.bad]
    received = sum(part.received for part in checked)
    if received:
        changes.counts[source.name] = RowCounts(received, received - len(bad), len(bad))
    epoch.bad[source.name] = bad
    return True
