"""A snapshot: all that is stored at one epoch, written in as many steps as it takes.

It consists of data files (durable/extents.py) and an index, a file of JSON that says what they
hold. The words of a large run have a file of their own, which later snapshots use again as long as
the run lives; so do the entries of dictionaries. Marks and counts, which epochs change in place,
are written with each snapshot, as they were when it began (store/capture.py).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.extents import Arrays, DataFile, Extent
from tidelog.durable.files import Files
from tidelog.durable.framing import damaged
from tidelog.durable.manifest import SnapshotRef
from tidelog.durable.tables import Entries, first_number, pack, type_of
from tidelog.store.capture import Capture
from tidelog.store.codec import Table
from tidelog.store.sets import SetTable
from tidelog.values.types import Type

LARGE = 1 << 20  # bytes of words from which on a run has a file of its own
_TABLE_ROWS = 1 << 15  # entries that are written at once
_MOST_FILES = 8  # of dictionaries, before they are written anew

Order = tuple[int, ...]


# --- what is in it ----------------------------------------------------------------------------


@dataclass(frozen=True)
class SavedRun:
    """One run in files."""

    dead: int
    words: Extent
    marks: Extent | None
    counts: Extent | None


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


@dataclass(frozen=True)
class Image:
    """Everything that is to be saved, as it is between two epochs."""

    epoch: int
    domains: Sequence[tuple[int, int]]
    """Bias and bits of each domain."""
    relations: Sequence[Relation]
    tables: Sequence[tuple[Type, Table | SetTable, int]]
    """The dictionaries, and how many entries each had."""
    stated: Mapping[str, NDArray[np.int64]]
    """Given rows that the program states as well, as columns of ordinals."""
    memories: Sequence[tuple[tuple[str, ...], str, Mapping[str, float]]]
    """What strategies remember: the relations, the name of the strategy, the numbers."""


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
                    found += (e for e in (run.words, run.marks, run.counts) if e is not None)
        return found

    def files(self) -> set[str]:
        """Return the names of all data files."""
        return {extent.file for extent in self.extents()}


# --- writing ----------------------------------------------------------------------------------


@dataclass
class _Written:
    """A part of the index that grows while a snapshot is written."""

    relations: list[Relation] = field(default_factory=list)
    tables: list[SavedTable] = field(default_factory=list)
    stated: dict[str, Extent] = field(default_factory=dict)


class SnapshotWriter:
    """Writes one snapshot. Nothing counts until a manifest names it."""

    def __init__(
        self,
        files: Files,
        identity: str,
        number: int,
        image: Image,
        known_tables: Sequence[SavedTable] = (),
    ) -> None:
        self._files, self._identity, self._number = files, identity, number
        self._image = image
        self._known_tables = known_tables
        self._open: list[DataFile] = []
        self.names: list[str] = []
        """The files that were made so far."""
        self._steps = self._write()
        self.saved: Saved | None = None
        """What was written, when all is."""
        self._words: list[tuple[Capture, Extent]] = []

    def advance(self, budget: int) -> SnapshotRef | None:
        """Write about so many bytes, and have them on the disk; return the snapshot at the end."""
        try:
            while budget > 0:
                budget -= next(self._steps)
        except StopIteration as end:
            ref: SnapshotRef = end.value
            return ref
        for file in self._open:
            file.sync()
        return None

    def counts_from_now_on(self) -> None:
        """Let later snapshots use the words that this one has written: a manifest names it."""
        for capture, extent in self._words:
            if capture.run.words is capture.words:
                capture.run.saved = extent

    def abandon(self) -> None:
        """Give up: close and remove what was written."""
        self._steps.close()
        for file in self._open:
            file.close()
        for name in self.names:
            self._files.remove(name)

    def _new_file(self, name: str) -> DataFile:
        self.names.append(name)
        file = DataFile(self._files, name, self._identity)
        self._open.append(file)
        return file

    def _finish_file(self, file: DataFile) -> None:
        file.sync()
        file.close()
        self._open.remove(file)

    def _write(self) -> Generator[int, None, SnapshotRef]:
        image, number = self._image, self._number
        written = _Written()
        data = self._new_file(f"data-{number:08}.tide")
        for name, rows in image.stated.items():
            written.stated[name] = yield from data.put(rows)
        written.tables += yield from self._write_tables()
        for relation in image.relations:
            orders: dict[Order, list[SavedRun]] = {}
            for order, captures in relation.orders.items():
                orders[order] = []
                for capture in captures:
                    orders[order].append((yield from self._write_run(capture, data)))
            written.relations.append(
                Relation(relation.name, relation.is_given, relation.domains, orders)
            )
        self._finish_file(data)
        saved = Saved(
            image.epoch, image.domains, written.relations, written.tables, written.stated,
            image.memories,
        )  # fmt: skip
        index = _as_json(saved)
        name = f"snapshot-{number:08}.json"
        self.names.append(name)
        file = self._files.create(name)
        try:
            self._files.write(file, index, 0, name)
            self._files.sync(file, name)
        finally:
            self._files.close(file)
        self.saved = saved
        size = sum(extent.nbytes for extent in saved.extents())
        return SnapshotRef(name, len(index), zlib.crc32(index), image.epoch, size)

    def _write_run(self, capture: Capture, data: DataFile) -> Generator[int, None, SavedRun]:
        known = capture.run.saved if capture.run.words is capture.words else None
        if isinstance(known, Extent):
            words = known
        elif capture.words.nbytes >= LARGE:
            own = self._new_file(f"words-{self._number:08}-{len(self.names):04}.tide")
            words = yield from own.put(capture.words)
            self._finish_file(own)
            self._words.append((capture, words))
        else:
            words = yield from data.put(capture.words)
        n = capture.words.shape[1]
        marks = counts = None
        if capture.marks is not None:
            marks = yield from data.put_parts(n, capture.marks.dtype, capture.marks.part)
        if capture.counts is not None:
            counts = yield from data.put_parts(n, capture.counts.dtype, capture.counts.part)
        return SavedRun(capture.dead, words, marks, counts)

    def _write_tables(self) -> Generator[int, None, list[SavedTable]]:
        """Write the entries that no earlier snapshot has written."""
        known = list(self._known_tables)
        if len({part.lengths.file for part in known}) > _MOST_FILES:
            known = []
        file: DataFile | None = None
        for type_, table, size in self._image.tables:
            parts = [part for part in known if part.type == type_]
            first = parts[-1].first + parts[-1].count if parts else first_number(type_)
            while first < size:
                if file is None:
                    file = self._new_file(f"tables-{self._number:08}.tide")
                items = table.entries(first, min(size, first + _TABLE_ROWS))
                entries = pack(type_, first, items)
                lengths = yield from file.put(entries.lengths)
                content = yield from file.put(entries.content)
                known.append(SavedTable(type_, first, len(items), lengths, content))
                first += len(items)
        if file is not None:
            self._finish_file(file)
        return known


# --- the index --------------------------------------------------------------------------------


def _as_json(saved: Saved) -> bytes:
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
