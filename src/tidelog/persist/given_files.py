"""The given rows of a state, read from its files without an engine.

For a program that has changed, for exports, and for deep verification.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidelog.durable.dictionaries import restore
from tidelog.durable.epochs import EpochRecord, Role, domain_like
from tidelog.durable.extents import Arrays
from tidelog.durable.files import Files
from tidelog.durable.log_reading import read_published, read_records
from tidelog.durable.manifest import FACTS_ARE_RULES, Manifest
from tidelog.durable.saved import SavedRelation, SavedSnapshot, load_index
from tidelog.kernel import rows as kernel
from tidelog.kernel.marks import DEAD
from tidelog.logic.program import Program
from tidelog.store.codec import Codec, Ordinals
from tidelog.store.layout import Layout
from tidelog.values.types import Row, Type


@dataclass(frozen=True)
class GivenFacts:
    """The program of a state, its given rows, and the epoch that they are of."""

    program: Program
    rows: dict[str, set[Row]]
    epoch: int


def read_given(
    files: Files, manifest: Manifest, *, verify: bool = True, is_writer: bool = False
) -> GivenFacts:
    """Return the given rows at the last committed epoch.

    The writer of the state gets all epochs of the log. The published position of the last commit,
    which others go by, may be behind.
    """
    program = Program.parse(manifest.program, manifest.program_name)
    saved = load_index(files, manifest.snapshot)
    arrays = Arrays(files, manifest.identity, verify=verify)
    codec = Codec(program.records)
    for dictionary in saved.dictionaries:
        restore(codec, dictionary.read(arrays))
    types = _types(program)
    separate = {relation.name for relation in saved.relations if relation.is_given}
    rows: dict[str, set[Row]] = {}
    for relation in saved.relations:
        name = relation.name
        if name in types and (relation.is_given or name not in separate):
            rows[name] = _decoded(codec, _ordinals(relation, saved, arrays), types[name])
    if manifest.format < FACTS_ARE_RULES:  # all facts are among these rows, given or not
        for fact in program.facts:
            rows[fact.relation].discard(fact.row)
        for name, extent in saved.given_facts.items():
            rows[name] |= _decoded(codec, arrays.read(extent), types[name])
    epoch = saved.epoch
    published = read_published(files, manifest.identity)
    for record in read_records(
        files, manifest.identity, manifest.segments, epoch, published,
        committed_only=not is_writer, unfinished=True,
    ):  # fmt: skip
        change = EpochRecord.decode(*record.payloads)
        if change.program is not None:
            program = Program.parse(*change.program[:2])
            codec.add_records(program.records)
            types = _types(program)
            rows = {name: rows.get(name, set()) for name in program.relations}
        for entries in change.entries:
            restore(codec, entries)
        for part in change.changes:
            if part.role is not Role.VIEW:
                inserted, deleted = part.ordinals()
                held = rows.setdefault(part.relation, set())
                held |= _decoded(codec, inserted, types[part.relation])
                held -= _decoded(codec, deleted, types[part.relation])
        epoch = record.epoch
    return GivenFacts(program, rows, epoch)


def _types(program: Program) -> dict[str, list[Type]]:
    return {
        name: [column.type for column in relation.columns]
        for name, relation in program.relations.items()
    }


def _ordinals(relation: SavedRelation, saved: SavedSnapshot, arrays: Arrays) -> Ordinals:
    """Return the rows of a saved relation that are not dead, as columns of ordinals."""
    domains = [domain_like(*saved.domains[number]) for number in relation.domains]
    order = tuple(range(len(domains)))
    layout = Layout(order, domains)
    parts = [np.empty((len(domains), 0), np.int64)]
    for run in relation.orders[order]:
        words = arrays.read(run.words)
        if run.dead and run.marks is not None:
            words = np.ascontiguousarray(words[:, arrays.read(run.marks) != DEAD])
        columns = np.empty((len(domains), words.shape[1]), np.int64)
        kernel.unpack(words, words.shape[1], layout.by_column, columns)
        parts.append(columns)
    biases = np.array([domain.bias for domain in domains], np.int64)
    return np.concatenate(parts, axis=1) + biases[:, None]


def _decoded(codec: Codec, ordinals: Ordinals, types: list[Type]) -> set[Row]:
    if not types:
        return {()} if ordinals.shape[1] else set()
    return set(codec.decode_rows(ordinals, types))
