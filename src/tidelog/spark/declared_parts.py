"""The sources and sinks of a pipeline, made from their declarations and checked against a program.

A relation whose rows are replaced or forgotten has one source: another one could not say which of
its rows still count.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tidelog.errors import UsageError, did_you_mean
from tidelog.logic.condition import condition_program
from tidelog.logic.program import Program, Relation
from tidelog.spark.declared import Sink, Source, named
from tidelog.spark.selecting import Selecting
from tidelog.spark.sink_run import SinkRun
from tidelog.spark.sink_state import SinkState
from tidelog.spark.sinks import writer
from tidelog.spark.sources import PipelineSource, pipeline_source
from tidelog.spark.state_folder import SINKS


def relation_of(program: Program, name: str, kind: str, key: str) -> Relation:
    """Return a relation that a part names; raise UsageError if the program has no such relation."""
    relations = program.relations
    if name not in relations:
        hint = did_you_mean(name, relations)
        raise UsageError(
            f"a {kind} names the {key} `{name}`, which the program does not declare"
            + (f"\n  help: {hint}" if hint else "")
        )
    return relations[name]


def declared_sources(program: Program, specs: Sequence[Source]) -> list[PipelineSource]:
    """Return the sources of a pipeline."""
    result = []
    names = named([spec.name or spec.relation for spec in specs])
    for name, spec in zip(names, specs, strict=True):
        relation = relation_of(program, spec.relation, "source", "relation")
        retaining = _with_retain(spec, name, program)
        result.append(pipeline_source(retaining, name, relation, program.records))
    for source in result:
        others = [s for s in result if s.relation is source.relation and s is not source]
        if others:
            _check_shared(source, others[0])
    return result


def _with_retain(spec: Source, name: str, program: Program) -> Source:
    """Return a source that retains rows as the program says."""
    retain = program.retained.get(spec.relation)
    if retain is None:
        return spec
    if spec.retain:
        raise UsageError(
            f"source `{name}` has `retain`, and the program has `.retain {spec.relation}`"
            "\n  help: remove one of them"
        )
    column = program.relations[spec.relation].columns[retain.column].name
    if not isinstance(retain.bound, dt.timedelta):
        raise UsageError(
            f"`.retain {spec.relation}` is by a number, and a pipeline needs a time"
            f"\n  help: declare `{column}` as a timestamp or a date"
        )
    length = f"{retain.bound / dt.timedelta(milliseconds=1):f}ms"
    return replace(spec, retain=length, retain_by=column)


def _check_shared(source: PipelineSource, other: PipelineSource) -> None:
    """Raise UsageError if a source must be the only one of its relation."""
    if source.spec.retain:
        raise UsageError(
            f"source `{source.name}` has `retain`, so `{other.name}` cannot add rows to"
            f" `{source.relation.name}`, too"
        )
    if source.upsert is not None:
        raise UsageError(
            f"source `{source.name}` replaces rows of `{source.relation.name}` by key, so"
            f" `{other.name}` cannot add rows to it"
            "\n  help: a relation with a source that has `keys` has no other source"
        )
    if source.spec.mode == "snapshot":
        raise UsageError(
            f"source `{source.name}` is a snapshot of `{source.relation.name}`, so"
            f" `{other.name}` cannot add rows to it"
            '\n  help: a relation with a source of mode = "snapshot" has no other source'
        )


def declared_sinks(
    program: Program,
    specs: Sequence[Sink],
    state: Path,
    pipeline: str,
    text: str,
    *,
    migrates: bool,
) -> list[SinkRun]:
    """Return the sinks of a pipeline, each with what `state` records of it.

    `text` identifies the program: a sink of another one begins again. If the state `migrates`, it
    continues: the difference between the programs is an epoch.
    """
    names = named([s.name or f"{s.view}-{s.what}-{s.format}" for s in specs])
    result = []
    for name, spec in zip(names, specs, strict=True):
        relation = relation_of(program, spec.view, "sink", "view")
        wrote = SinkState(state / SINKS, name, spec, text, migrates=migrates)
        selecting = _selecting(program, spec)
        made = writer(replace(spec, name=name), relation, program.records)
        result.append(SinkRun(name, made, wrote, pipeline, selecting))
    return result


def _selecting(program: Program, spec: Sink) -> Selecting | None:
    """Return what selects the changes of a trigger; its condition is checked."""
    trigger = spec.trigger
    if trigger is None:
        return None
    if trigger.where:
        condition_program(program, spec.view, trigger.where)
    return Selecting(program.text, program.name, spec.view, trigger.sign, trigger.where)
