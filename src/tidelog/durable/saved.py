"""What a snapshot holds, and where: its index, a file of JSON.

Data files have arrays (durable/extents.py); the index says which array is what. It is written and
checked as a whole. What it names is read when somebody needs it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelog.durable.extents import Arrays, Extent
from tidelog.durable.files import Files
from tidelog.durable.framing import damaged
from tidelog.durable.manifest import SnapshotRef
from tidelog.durable.tables import Entries, type_of
from tidelog.values.types import Type

Order = tuple[int, ...]


@dataclass(frozen=True)
class SavedRun:
    """One run in files."""

    dead: int
    words: Extent
    marks: Extent | None
    counts: Extent | None

    def extents(self) -> list[Extent]:
        """Return its arrays."""
        return [extent for extent in (self.words, self.marks, self.counts) if extent is not None]

    @property
    def nbytes(self) -> int:
        """The size of its arrays."""
        return sum(extent.nbytes for extent in self.extents())


@dataclass(frozen=True)
class RunInFiles:
    """The arrays of a run, to be read when they are needed (store/lazy_run.py)."""

    saved: SavedRun
    arrays: Arrays
    rows_only: bool
    """Whether rows are all that is needed: neither levels nor counts."""

    @property
    def words(self) -> Extent | None:
        """Where the words are, if they have a file of their own."""
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
    """Heads and words of the groups of an aggregate (store/accumulators.py)."""

    heads: Extent
    words: Extent
    words_used: int

    @property
    def nbytes(self) -> int:
        """The size of both."""
        return self.heads.nbytes + self.words.nbytes


@dataclass(frozen=True)
class SumsInFiles:
    """The groups of an aggregate, to be read when they are needed."""

    saved: GroupsInFiles
    arrays: Arrays

    @property
    def nbytes(self) -> int:
        """The size of the arrays."""
        return self.saved.nbytes

    def read(self) -> tuple[Any, Any, int]:
        """Return heads and words, and how many of these are used."""
        saved, read = self.saved, self.arrays.read
        return read(saved.heads), read(saved.words), saved.words_used


@dataclass(frozen=True)
class Relation:
    """A stored relation: the numbers of its domains, and its runs by order.

    `Run` is what a run is: a capture of one in memory, or where one is in files.
    """

    name: str
    is_given: bool
    """Whether these are the given rows of a relation that rules derive, too."""
    domains: tuple[int, ...]
    orders: Mapping[Order, Sequence[Any]]
    sums: Sequence[Any] = ()
    """What is attached to it: captures of groups, or where they are in files."""


@dataclass(frozen=True)
class SavedTable:
    """Entries of a dictionary in files."""

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
class Saved:
    """A snapshot that is in files."""

    epoch: int
    domains: Sequence[tuple[int, int]]
    relations: Sequence[Relation]
    tables: Sequence[SavedTable]
    stated: Mapping[str, Extent]
    memories: Sequence[tuple[tuple[str, ...], str, Mapping[str, float]]]

    def extents(self) -> list[Extent]:
        """Return all arrays."""
        found = list(self.stated.values())
        for table in self.tables:
            found += (table.lengths, table.content)
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
        """Return the size of all data files, with what is in them and not used any more."""
        return sum(files.size(name) for name in self.files())


# --- the index --------------------------------------------------------------------------------


def as_json(saved: Saved) -> bytes:
    """Return the index of a snapshot."""

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
        for part in saved.tables
    ]
    index = {
        "epoch": saved.epoch,
        "domains": saved.domains,
        "relations": relations,
        "tables": tables,
        "stated": {name: extent(held) for name, held in saved.stated.items()},
        "memories": saved.memories,
    }
    return json.dumps(index, separators=(",", ":")).encode()


def load_index(files: Files, ref: SnapshotRef) -> Saved:
    """Return what a snapshot holds; raise StateError if its index is damaged."""
    data = files.read(ref.name)
    if len(data) != ref.bytes or zlib.crc32(data) != ref.crc:
        raise damaged(files.shown(ref.name), 0)
    index = json.loads(data)

    def extent(held: list[Any] | None) -> Extent | None:
        return None if held is None else Extent.from_data(held)

    def sure(held: list[Any]) -> Extent:
        return Extent.from_data(held)

    relations = [
        Relation(
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
        SavedTable(type_of(text), first, count, sure(lengths), sure(content))
        for text, first, count, lengths, content in index["tables"]
    ]
    return Saved(
        index["epoch"],
        [(bias, bits) for bias, bits in index["domains"]],
        relations,
        tables,
        {name: sure(held) for name, held in index["stated"].items()},
        [(tuple(names), strategy, memory) for names, strategy, memory in index["memories"]],
    )
