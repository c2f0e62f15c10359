"""A snapshot: all that is stored at one epoch, written in as many steps as it takes.

It consists of data files (durable/extents.py) and an index that says what they hold
(durable/saved.py). The words of a large run have a file of their own, which later snapshots use
again as long as the run lives; so do the entries of dictionaries, and all that nobody has touched
since it was opened. Marks, counts and sums, which epochs change in place, are written with each
snapshot, as they were when it began (store/capture.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.extents import DataFile, Extent
from tidelog.durable.files import Files
from tidelog.durable.manifest import SnapshotRef
from tidelog.durable.saved import (
    GroupsInFiles,
    Order,
    Relation,
    Saved,
    SavedRun,
    SavedTable,
    as_json,
)
from tidelog.durable.tables import first_number, pack
from tidelog.store.capture import Capture
from tidelog.store.codec import Table
from tidelog.store.sets import SetTable
from tidelog.store.sums_capture import SumsCapture
from tidelog.values.types import Type

LARGE = 1 << 20  # bytes of words from which on a run has a file of its own
_TABLE_ROWS = 1 << 15  # entries that are written at once
_MOST_FILES = 8  # of dictionaries, before they are written anew


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
            sums: list[GroupsInFiles] = []
            for groups in relation.sums:
                sums.append((yield from self._write_sums(groups, data)))
            written.relations.append(
                Relation(relation.name, relation.is_given, relation.domains, orders, sums)
            )
        self._finish_file(data)
        saved = Saved(
            image.epoch, image.domains, written.relations, written.tables, written.stated,
            image.memories,
        )  # fmt: skip
        index = as_json(saved)
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
        if isinstance(capture.saved, SavedRun):
            return capture.saved
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

    def _write_sums(
        self, capture: SumsCapture, data: DataFile
    ) -> Generator[int, None, GroupsInFiles]:
        if isinstance(capture.saved, GroupsInFiles):
            return capture.saved
        heads, words = capture.heads, capture.words
        return GroupsInFiles(
            (yield from data.put_parts(capture.sizes[0], heads.dtype, heads.part)),
            (yield from data.put_parts(capture.sizes[1], words.dtype, words.part)),
            capture.words_used,
        )

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
