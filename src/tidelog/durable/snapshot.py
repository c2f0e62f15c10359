"""Write a snapshot: everything stored at one epoch, in small steps between later epochs.

A snapshot consists of data files (durable/extents.py) and an index that names their arrays
(durable/saved.py). The words of a large run have a file of their own, which later snapshots refer
to as long as the run exists. Dictionary entries, and runs not touched since the state was opened,
are not written again either. Marks, counts and sums change in place, so they are written with each
snapshot, as of the epoch at which it began (store/capture.py).
"""

from __future__ import annotations

import zlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field

from tidelog.durable.dictionaries import first_id, pack
from tidelog.durable.extents import DataFile, Extent
from tidelog.durable.files import Files
from tidelog.durable.manifest import SnapshotRef
from tidelog.durable.saved import (
    GroupsInFiles,
    Order,
    SavedEntries,
    SavedRelation,
    SavedRun,
    SavedSnapshot,
    as_json,
)
from tidelog.store.capture import Capture, SumsCapture
from tidelog.store.dictionary import Dictionary
from tidelog.store.sets import SetDictionary
from tidelog.values.types import Type

LARGE = 1 << 20  # a run with this many bytes of words has a file of its own
_ENTRIES_AT_ONCE = 1 << 15
_MOST_FILES = 8  # with more files of entries, all entries are written to a new one


@dataclass(frozen=True)
class Image:
    """Everything that a snapshot saves, as it is between two epochs."""

    epoch: int
    domains: Sequence[tuple[int, int]]
    """Bias and bits of each domain."""
    relations: Sequence[SavedRelation]
    dictionaries: Sequence[tuple[Type, Dictionary | SetDictionary, int]]
    """The dictionaries, and their numbers of entries."""
    statistics: Sequence[tuple[tuple[str, ...], str, Mapping[str, float]]]
    """For each strategy: its relations, its name, and its statistics."""


@dataclass
class _Written:
    """The parts of the index that grow while a snapshot is written."""

    relations: list[SavedRelation] = field(default_factory=list)
    dictionaries: list[SavedEntries] = field(default_factory=list)


class SnapshotWriter:
    """Writes one snapshot. It becomes part of the state when a manifest names it."""

    def __init__(
        self,
        files: Files,
        identity: str,
        number: int,
        image: Image,
        known_entries: Sequence[SavedEntries] = (),
    ) -> None:
        self._files, self._identity, self._number = files, identity, number
        self._image = image
        self._known_entries = known_entries
        self._open: list[DataFile] = []
        self.names: list[str] = []
        """The files created so far."""
        self._steps = self._write()
        self.saved: SavedSnapshot | None = None
        """The snapshot, once it is complete."""
        self._words: list[tuple[Capture, Extent]] = []

    def advance(self, budget: int) -> SnapshotRef | None:
        """Write and sync about `budget` bytes; return the snapshot when it is complete."""
        try:
            while budget > 0:
                budget -= next(self._steps)
        except StopIteration as end:
            ref: SnapshotRef = end.value
            return ref
        for file in self._open:
            file.sync()
        return None

    def on_committed(self) -> None:
        """Let later snapshots refer to the words written here: a manifest names this one."""
        for capture, extent in self._words:
            if capture.run.words is capture.words:
                capture.run.saved = extent

    def abandon(self) -> None:
        """Give up: close and remove all files."""
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
        written.dictionaries += yield from self._write_entries()
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
                SavedRelation(relation.name, relation.is_given, relation.domains, orders, sums)
            )
        self._finish_file(data)
        saved = SavedSnapshot(
            image.epoch, image.domains, written.relations, written.dictionaries, image.statistics
        )
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

    def _write_entries(self) -> Generator[int, None, list[SavedEntries]]:
        """Write the dictionary entries that no earlier snapshot has written; return all."""
        known = list(self._known_entries)
        if len({part.lengths.file for part in known}) > _MOST_FILES:
            known = []
        file: DataFile | None = None
        for type_, dictionary, size in self._image.dictionaries:
            parts = [part for part in known if part.type == type_]
            first = parts[-1].first + parts[-1].count if parts else first_id(type_)
            while first < size:
                if file is None:
                    file = self._new_file(f"tables-{self._number:08}.tide")
                items = dictionary.entries(first, min(size, first + _ENTRIES_AT_ONCE))
                entries = pack(type_, first, items)
                lengths = yield from file.put(entries.lengths)
                content = yield from file.put(entries.content)
                known.append(SavedEntries(type_, first, len(items), lengths, content))
                first += len(items)
        if file is not None:
            self._finish_file(file)
        return known
