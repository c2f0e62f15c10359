"""The index of a snapshot: a JSON file that names its arrays.

The arrays are in data files (durable/extents.py); the index says which array holds what. The index
has one checksum, and is read when the state is opened. The arrays are read when they are needed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidelog.durable.dictionaries import Entries, parse_type
from tidelog.durable.extents import Arrays, Extent
from tidelog.durable.files import Files
from tidelog.durable.framing import damaged
from tidelog.durable.manifest import SnapshotRef
from tidelog.values.types import Type

Order = tuple[int, ...]


@dataclass(frozen=True)
class SavedRun:
    """The arrays of one run, in files."""

    dead: int
    words: Extent
    marks: Extent | None
    counts: Extent | None

    def extents(self) -> list[Extent]:
        """Return the extents of its arrays."""
        return [extent for extent in (self.words, self.marks, self.counts) if extent is not None]

    @property
    def nbytes(self) -> int:
        """The size of its arrays."""
        return sum(extent.nbytes for extent in self.extents())


@dataclass(frozen=True)
class RunInFiles:
    """A run that is read from files when it is needed (store/lazy_run.py)."""

    saved: SavedRun
    arrays: Arrays
    rows_only: bool
    """Whether only rows are needed, neither levels nor counts."""

    @property
    def words(self) -> Extent | None:
        """The extent of the words, if they have a file of their own."""
        return self.saved.words if self.saved.words.file.startswith("words-") else None

    @property
    def nbytes(self) -> int:
        """The size of the arrays."""
        return self.saved.nbytes

    def read(self) -> tuple[Any, Any, Any]:
        """Return words, marks and counts."""
        saved, read = self.saved, self.arrays.read
        marks = None if self.rows_only and not saved.dead else saved.marks
        counts = None if self.rows_only else saved.counts
        return (
            read(saved.words),
            None if marks is None else read(marks),
            None if counts is None else read(counts),
        )


@dataclass(frozen=True)
class GroupsInFiles:
    """The arrays of the groups of an aggregate, in files (store/accumulators.py)."""

    heads: Extent
    words: Extent
    words_used: int

    @property
    def nbytes(self) -> int:
        """The size of its arrays."""
        return self.heads.nbytes + self.words.nbytes


@dataclass(frozen=True)
class SumsInFiles:
    """The groups of an aggregate, read from files when they are needed."""

    saved: GroupsInFiles
    arrays: Arrays

    @property
    def nbytes(self) -> int:
        """The size of the arrays."""
        return self.saved.nbytes

    def read(self) -> tuple[Any, Any, int]:
        """Return heads, words, and the number of words in use."""
        saved, read = self.saved, self.arrays.read
        return read(saved.heads), read(saved.words), saved.words_used


@dataclass(frozen=True)
class SavedRelation:
    """A relation in a snapshot: the indexes of its domains, and its runs by order.

    While a snapshot is written, runs and sums are captures of those in memory. In a finished one,
    they are `SavedRun` and `GroupsInFiles`.
    """

    name: str
    is_given: bool
    """Whether these are the given rows of a relation that also has rules."""
    domains: tuple[int, ...]
    orders: Mapping[Order, Sequence[Any]]
    sums: Sequence[Any] = ()
    """The groups of aggregates that are attached to it."""


@dataclass(frozen=True)
class SavedEntries:
    """Consecutive entries of a dictionary, in files."""

    type: Type
    first: int
    count: int
    lengths: Extent
    content: Extent

    def read(self, arrays: Arrays) -> Entries:
        """Return the entries."""
        return Entries(
            self.type, self.first, self.count, arrays.read(self.lengths), arrays.read(self.content)
        )


@dataclass(frozen=True)
class SavedSnapshot:
    """A snapshot in files."""

    epoch: int
    domains: Sequence[tuple[int, int]]
    relations: Sequence[SavedRelation]
    dictionaries: Sequence[SavedEntries]
    statistics: Sequence[tuple[tuple[str, ...], str, Mapping[str, float]]]
    given_facts: Mapping[str, Extent] = field(default_factory=dict)
    """Formats 1 and 2 only: the given rows that are program facts as well."""

    def extents(self) -> list[Extent]:
        """Return the extents of all arrays."""
        found = list(self.given_facts.values())
        for entries in self.dictionaries:
            found += (entries.lengths, entries.content)
        for relation in self.relations:
            for runs in relation.orders.values():
                for run in runs:
                    found += run.extents()
            for sums in relation.sums:
                found += (sums.heads, sums.words)
        return found

    def files(self) -> set[str]:
        """Return the names of all data files."""
        return {extent.file for extent in self.extents()}

    def held_bytes(self, files: Files) -> int:
        """Return the size of all data files, including arrays that are no longer used."""
        return sum(files.size(name) for name in self.files())


# --- the index --------------------------------------------------------------------------------


def as_json(saved: SavedSnapshot) -> bytes:
    """Return the content of the index file."""

    def extent(held: Extent | None) -> list[Any] | None:
        return None if held is None else held.as_data()

    relations = [
        {
            "name": relation.name,
            "given": relation.is_given,
            "domains": relation.domains,
            "orders": [
                {
                    "order": order,
                    "runs": [
                        [run.dead, extent(run.words), extent(run.marks), extent(run.counts)]
                        for run in runs
                    ],
                }
                for order, runs in relation.orders.items()
            ],
            "sums": [
                [extent(sums.heads), extent(sums.words), sums.words_used] for sums in relation.sums
            ],
        }
        for relation in saved.relations
    ]
    tables = [
        [str(part.type), part.first, part.count, extent(part.lengths), extent(part.content)]
        for part in saved.dictionaries
    ]
    index = {
        "epoch": saved.epoch,
        "domains": saved.domains,
        "relations": relations,
        "tables": tables,
        "memories": saved.statistics,
    }
    return json.dumps(index, separators=(",", ":")).encode()


def load_index(files: Files, ref: SnapshotRef) -> SavedSnapshot:
    """Return the snapshot that an index describes; raise StateError if the index is damaged."""
    data = files.read(ref.name)
    if len(data) != ref.bytes or zlib.crc32(data) != ref.crc:
        raise damaged(files.shown(ref.name), 0)
    index = json.loads(data)

    def extent(held: list[Any] | None) -> Extent | None:
        return None if held is None else Extent.from_data(held)

    def sure(held: list[Any]) -> Extent:
        return Extent.from_data(held)

    relations = [
        SavedRelation(
            relation["name"],
            relation["given"],
            tuple(relation["domains"]),
            {
                tuple(order["order"]): [
                    SavedRun(dead, sure(words), extent(marks), extent(counts))
                    for dead, words, marks, counts in order["runs"]
                ]
                for order in relation["orders"]
            },
            [
                GroupsInFiles(sure(heads), sure(words), used)
                for heads, words, used in relation.get("sums", ())
            ],
        )
        for relation in index["relations"]
    ]
    tables = [
        SavedEntries(parse_type(text), first, count, sure(lengths), sure(content))
        for text, first, count, lengths, content in index["tables"]
    ]
    return SavedSnapshot(
        index["epoch"],
        [(bias, bits) for bias, bits in index["domains"]],
        relations,
        tables,
        [(tuple(names), strategy, numbers) for names, strategy, numbers in index["memories"]],
        {name: sure(held) for name, held in index.get("stated", {}).items()},
    )
