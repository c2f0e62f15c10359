"""`tidelog pipeline status`: how far a pipeline is, as lines or as JSON. Spark is not started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.spark.failures import recorded
from tidelog.spark.pipeline import Pipeline
from tidelog.spark.pipeline_file import read_pipeline_file
from tidelog.spark.retained_time import RETAINED, late_rows
from tidelog.spark.state_folder import FAILURES

if TYPE_CHECKING:
    from tidelog.spark.pipeline_file import PipelineFile
    from tidelog.spark.placements import Chosen


def show_status(file: Path, *, as_json: bool) -> None:
    """Print the progress of the pipeline of a file."""
    found = _status(read_pipeline_file(file))
    if as_json:
        print(json.dumps(found, indent=2, ensure_ascii=False))
        return
    for line in _lines(found):
        print(line)


def _status(spec: PipelineFile) -> dict[str, Any]:
    from tidelog.spark.placements import existing
    from tidelog.spark.source_files import FileSource

    pipeline = Pipeline.from_file(spec)
    found: dict[str, Any] = {"name": spec.name, "placement": pipeline.placement, "epoch": None}
    failing = {(f.kind, f.name): f for f in recorded(spec.state / FAILURES)}

    def failure_of(kind: str, name: str) -> dict[str, Any] | None:
        failure = failing.get((kind, name))
        if failure is None:
            return None
        return {"since": failure.since, "tries": failure.tries, "error": failure.error}

    there = existing(spec.state)
    epoch, offsets, counts = -1, dict[str, dict[str, str]](), dict[str, tuple[int, ...]]()
    if there is not None:
        epoch, offsets, counts = _read_sharded(there) if there.sides else _read_database(there)
        found["epoch"] = epoch
    found["query"] = {"failure": failure_of("query", spec.name)}
    found["sources"] = []
    for source in pipeline.sources:
        received, accepted, quarantined = counts.get(source.name, (0, 0, 0))
        one: dict[str, Any] = {
            "name": source.name, "relation": source.relation.name, "received": received,
            "accepted": accepted, "quarantined": quarantined,
            "failure": failure_of("source", source.name),
        }  # fmt: skip
        if source.spec.retain:
            one["late"] = late_rows(offsets.get(RETAINED, {}), source.name)
        if isinstance(source, FileSource):
            one["files"] = source.file_counts(offsets.get(source.name, {}))
        found["sources"].append(one)
    found["sinks"] = [
        {
            "name": sink.name, "kind": "sink" if sink.spec.trigger is None else "trigger",
            "view": sink.view, "what": sink.spec.what,
            "format": sink.spec.format, "epoch": sink.epoch,
            "behind": epoch + 1 if sink.epoch is None else max(0, epoch - sink.epoch),
            "failure": failure_of("sink", sink.name),
        }
        for sink in pipeline.sinks
    ]  # fmt: skip
    return found


def _lines(found: dict[str, Any]) -> Iterator[str]:
    if found["epoch"] is None:
        yield f"{found['name']}: no epoch yet"
    else:
        yield f"{found['name']}: epoch {found['epoch']}"
    if found["query"]["failure"]:
        yield f"streaming query{_failure(found['query'])}"
    for source in found["sources"]:
        if found["epoch"] is None and not source["failure"]:
            continue
        yield (
            f"source {source['name']}: {source['received']:,} received,"
            f" {source['accepted']:,} accepted, {source['quarantined']:,} quarantined"
            f"{f', {late:,} too late' if (late := source.get('late')) else ''}"
            f"{_files(source.get('files'))}{_failure(source)}"
        )
    for sink in found["sinks"]:
        if found["epoch"] is None and not sink["failure"]:
            continue
        behind = (
            "nothing written" if sink["epoch"] is None else f"written up to epoch {sink['epoch']}"
        )
        yield f"{sink['kind']} {sink['name']}: {behind}{_failure(sink)}"


def _files(files: dict[str, Any] | None) -> str:
    if not files:
        return ""
    text = f"; {files['read']:,} files read, {files['waiting']:,} waiting"
    if files["changed"]:
        text += f"; changed later and not read again: {', '.join(files['changed'][:5])}"
    return text


def _failure(part: dict[str, Any]) -> str:
    failure = part["failure"]
    if not failure:
        return ""
    tries = f"{failure['tries']} tr{'y' if failure['tries'] == 1 else 'ies'}"
    return f"; fails since {failure['since']} ({tries}): {failure['error']}"


_Committed = tuple[int, dict[str, dict[str, str]], dict[str, tuple[int, ...]]]


def _read_database(there: Chosen) -> _Committed:
    from tidelog.database.reader import DatabaseReader
    from tidelog.spark.placement_driver import COUNTS, OFFSETS

    reader = DatabaseReader(there.folder)
    counts = {row[0]: row[1:] for row in reader.view(COUNTS)}
    offsets: dict[str, dict[str, str]] = {}
    for source, item, offset in reader.view(OFFSETS):
        offsets.setdefault(source, {})[item] = offset
    return reader.epoch, offsets, counts


def _read_sharded(there: Chosen) -> _Committed:
    from tidelog.sharding.manifest import Epochs

    epochs = Epochs(there.folder)
    last = epochs.read(epochs.numbers()[-1])
    read = epochs.read_offsets(last)
    counts = {source: astuple(count) for source, count in read.counts.items()}
    return last.epoch, read.offsets, counts
