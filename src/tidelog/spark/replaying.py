"""Rows of the quarantine that are valid now become an epoch; the others stay.

A row can become valid when the declaration of its relation changes, or `nulls` or `columns` of its
source, or a rule on which it failed. Rows are checked by the same code as new ones. Rows that Spark
could not parse stay, and so do rows of snapshots and rows with keys: there, only the current
content of the source counts.

A file of the quarantine and the epoch must change together. The rows that stay are written beside
the file under a random name, the epoch commits that name, and then the file is replaced. If the
process ends in between, the next start finds the name and finishes.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidelog.errors import UsageError, did_you_mean
from tidelog.io.atomic import file_name, replace_text
from tidelog.io.offsets import RowCounts
from tidelog.spark.checking import Checked, Checker
from tidelog.spark.envelopes import encode, text_schema
from tidelog.spark.epoch_changes import EpochChanges, net
from tidelog.spark.frames import to_frame
from tidelog.spark.placements import Placement
from tidelog.spark.rule_errors import find_failing, taken_rows
from tidelog.spark.sources import PipelineSource
from tidelog.values.types import Row

REPLAYED = "tidelog quarantine"
"""The name under which the files that were replayed are committed. No source can have it."""
_MODES = ("append", "changes", "debezium", "delta-changes")


@dataclass
class Replayed:
    """What a replay did, by source."""

    epoch: int | None = None
    """The epoch that it made; None if no row fits."""
    taken: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)


@dataclass
class _File:
    """A file of the quarantine, and its rows that fit."""

    source: PipelineSource
    path: Path
    lines: list[str]
    checked: Checked = field(default_factory=Checked)
    line_of: list[int] = field(default_factory=list)
    """The line of each row that fits."""

    @property
    def taken(self) -> set[int]:
        """The lines that are taken."""
        return set(self.line_of)

    def refuse(self, failing: Set[tuple[str, Row]]) -> None:
        """Leave out the lines that insert one of these rows of relations."""
        name, checked = self.source.relation.name, self.checked
        inserted = [True] * len(checked.rows) if checked.inserted is None else checked.inserted
        refused = {
            line
            for line, row, is_new in zip(self.line_of, checked.rows, inserted, strict=True)
            if is_new and (name, row) in failing
        }
        kept = [i for i, line in enumerate(self.line_of) if line not in refused]
        self.line_of = [self.line_of[i] for i in kept]
        signs = None if checked.inserted is None else checked.inserted[kept]
        self.checked = Checked(len(kept), taken_rows(checked.rows, kept), signs)


class Replay:
    """Replays the quarantine of a pipeline."""

    def __init__(self, folder: Path, sources: Sequence[PipelineSource], records: Any) -> None:
        self._folder, self._sources, self._records = folder, sources, records

    def finish(self, placement: Placement) -> None:
        """Finish what a process that has ended left: replace files, or forget the attempt."""
        for path in self._folder.glob("*/.*.left"):
            name, token = path.name.removeprefix(".").removesuffix(".left").rsplit(".", 1)
            item = f"{path.parent.name}/{name}"
            if placement.offsets(REPLAYED).get(item) == token:
                self._replace(path.with_name(name), path)
            else:
                path.unlink()

    def run(self, spark: Any, placement: Placement, only: str | None) -> Replayed:
        """Do an epoch with the rows that fit, of all sources or of one."""
        names = [source.name for source in self._sources]
        if only is not None and only not in names:
            hint = did_you_mean(only, names)
            raise UsageError(f"there is no source `{only}`" + (f"\n  help: {hint}" if hint else ""))
        self.finish(placement)
        files = [
            self._checked(spark, source, path)
            for source in self._sources
            if only in (None, source.name)
            for path in sorted((self._folder / file_name(source.name)).glob("epoch-*.jsonl"))
        ]
        changes = _changes(files)
        error = placement.probe(changes) if any(file.taken for file in files) else None
        if error is not None:
            found = find_failing(changes, placement.probe, error)
            failing = {(name, row) for name, row, _ in found}
            for file in files:
                file.refuse(failing)
            changes = _changes(files)
        return self._apply(files, changes, placement)

    def _apply(
        self, files: Sequence[_File], changes: EpochChanges, placement: Placement
    ) -> Replayed:
        done = Replayed()
        offsets: dict[str, str] = {}
        for file in files:
            name, taken = file.source.name, file.taken
            done.left[name] = done.left.get(name, 0) + len(file.lines) - len(taken)
            if taken:
                done.taken[name] = done.taken.get(name, 0) + len(taken)
                token = secrets.token_hex(8)
                kept = [line for i, line in enumerate(file.lines) if i not in taken]
                replace_text(_left(file.path, token), "".join(f"{line}\n" for line in kept))
                offsets[f"{file.path.parent.name}/{file.path.name}"] = token
        if offsets:
            changes.offsets[REPLAYED] = offsets
            for name, count in done.taken.items():
                changes.counts[name] = RowCounts(0, count, -count)
            done.epoch = placement.apply(changes).epoch
            self.finish(placement)
        return done

    def _checked(self, spark: Any, source: PipelineSource, path: Path) -> _File:
        """Return the rows of a file that fit."""
        file = _File(source, path, path.read_text(encoding="utf-8").splitlines())
        found: list[Mapping[str, Any]] = [json.loads(line) for line in file.lines]
        numbers = [
            i
            for i, bad in enumerate(found)
            if bad["source"] == source.name and isinstance(bad["row"], dict)
        ]
        if numbers and source.spec.mode in _MODES and not source.spec.keys:
            table = _encoded(spark, source, [json.dumps(found[i]["row"]) for i in numbers])
            conversion = replace(source.conversion, json_text=True)
            checker = Checker(
                source.relation, self._records, source.spec.mode, source.shape, conversion
            )
            file.checked = checker.check(table)
            places = file.checked.places
            file.line_of = numbers if places is None else [numbers[i] for i in places.tolist()]
        return file

    def _replace(self, path: Path, left: Path) -> None:
        os.replace(left, path)
        if not path.stat().st_size:
            path.unlink()


def _changes(files: Sequence[_File]) -> EpochChanges:
    """Return what the rows that fit change."""
    parts: dict[str, list[Checked]] = {}
    for file in files:
        parts.setdefault(file.source.relation.name, []).append(file.checked)
    changes = EpochChanges()
    for name, found in parts.items():
        changes.inserted[name], changes.deleted[name] = net(found)
    return changes


def _left(path: Path, token: str) -> Path:
    return path.with_name(f".{path.name}.{token}.left")


def _encoded(spark: Any, source: PipelineSource, rows: Sequence[str]) -> pa.Table:
    """Return rows, each as JSON, in the shape of all sources, as Spark makes it from a file."""
    from pyspark.sql import functions as F

    schema = text_schema(source.shape, source.spec.mode)
    numbered = pa.table({"at": pa.array(range(len(rows)), pa.int64()), "row": pa.array(rows)})
    frame = to_frame(spark, numbered).coalesce(1).sortWithinPartitions("at")
    parsed = frame.select(F.from_json("row", schema).alias("row")).select("row.*")
    return encode(parsed, source.shape, source.spec.mode).toArrow()
