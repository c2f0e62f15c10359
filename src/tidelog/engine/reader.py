"""Reading a durable database that another process, or another thread, writes to.

A reader takes no lock. It reads the last snapshot, and follows the log from there: views are the
rows of the snapshot and the changes of the epochs since. It stands on one committed epoch until
`refresh` takes it to the last one. Files that the writer removes meanwhile stay readable as long as
they are mapped; those that are gone before they were read are looked for in the newer manifest.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from tidelog.durable import manifest as manifests
from tidelog.durable.epochs import EpochRecord
from tidelog.durable.extents import Arrays
from tidelog.durable.files import Files
from tidelog.durable.log_reading import read_published, read_records
from tidelog.durable.manifest import Manifest
from tidelog.durable.saved import load_index
from tidelog.engine.history import Past, changes_since, check_retained, declared, parts_of
from tidelog.engine.reads import Reader
from tidelog.engine.saving import (
    OtherShapeError,
    net_change,
    restore_entries_of,
    restore_relations,
)
from tidelog.engine.stored_reads import StoredReader
from tidelog.engine.view import Change, View
from tidelog.errors import StateError, UsageError
from tidelog.logic.program import Program, Relation
from tidelog.maintain.catalog import Catalog
from tidelog.plan.lower import lower
from tidelog.store.codec import Codec

T = TypeVar("T")
_ATTEMPTS = 20  # to read a state whose files are being replaced


class DatabaseReader:
    """The views of a durable database at one committed epoch."""

    def __init__(self, path: str | Path, *, verify: bool = True) -> None:
        self._files = Files(path)
        self._verify = verify
        if not self._files.exists(manifests.NAME):
            raise UsageError(f"there is no database in `{path}`")
        self._reading = threading.RLock()
        self._manifest: Manifest
        self._program: Program
        self._catalog: Catalog
        self._epoch = -1
        self._last: tuple[int, int] | None = None  # where the record of that epoch ends
        self.refresh()

    @property
    def program(self) -> Program:
        """The program whose views these are."""
        return self._program

    @property
    def epoch(self) -> int:
        """The epoch that views show."""
        return self._epoch

    def view(self, name: str) -> View:
        """Return a relation to read from. It follows the reader: `refresh` changes it."""
        relation = declared(self._program, name)
        return View(relation, self._program.records, partial(self._ask, relation))

    def refresh(self) -> int:
        """Go to the last committed epoch; return its number."""
        with self._reading:
            for attempt in range(_ATTEMPTS):
                try:
                    self._follow()
                    break
                except StateError:
                    # The writer may have removed a file that the manifest named a moment ago.
                    if attempt == _ATTEMPTS - 1 or not self._is_replaced():
                        raise
            return self._epoch

    def at(self, epoch: int) -> Past:
        """Return the database as it was at an epoch that is still in the log."""
        with self._reading:
            check_retained(epoch, self._manifest.segments[0].first - 1, self._epoch)
            return Past(epoch, self._program, self._catalog, self._records, self._reading)

    def changes(self, view: str, since: int) -> Iterator[tuple[int, Change]]:
        """Return what each epoch after `since`, up to this one, changed in a view."""
        with self._reading:
            declared(self._program, view)
            check_retained(since, self._manifest.segments[0].first - 1, self._epoch)
            return changes_since(view, self._program, self._catalog.codec, self._records(since))

    def __repr__(self) -> str:
        return f"<DatabaseReader {self._program.name}: epoch {self._epoch}>"

    # --- following ---

    def _is_replaced(self) -> bool:
        """Return whether there is another manifest than the one that was read."""
        return not hasattr(self, "_manifest") or manifests.read(self._files) != self._manifest

    def _follow(self) -> None:
        manifest = manifests.read(self._files)
        known = self._epoch >= 0 and manifest.identity == self._manifest.identity
        previous, self._manifest = self._manifest if known else manifest, manifest
        if not known or manifest.segments[0].first > self._epoch + 1:
            self._load(manifest)
        try:
            records = self._new_records(manifest)
        except StateError:
            self._manifest = previous
            raise
        try:
            self._apply(records)
        except BaseException:
            self._epoch = -1  # half of it may be done: begin again
            raise

    def _load(self, manifest: Manifest) -> None:
        """Read the snapshot."""
        program = Program.parse(manifest.program, manifest.program_name)
        catalog = Catalog(lower(program), Codec(program.records))
        saved = load_index(self._files, manifest.snapshot)
        arrays = Arrays(self._files, manifest.identity, verify=self._verify)
        try:
            restore_relations(catalog, saved, arrays, rows_only=True)
        except OtherShapeError:
            raise StateError(
                f"`{self._files.folder}` was written by another version of Tidelog"
                "\n  help: open it for writing once"
            ) from None
        self._program, self._catalog = program, catalog
        self._epoch, self._last = saved.epoch, None

    def _new_records(self, manifest: Manifest) -> list[EpochRecord]:
        published = read_published(self._files, manifest.identity)
        found, last = [], self._last
        for record in read_records(
            self._files, manifest.identity, manifest.segments, self._epoch, published,
            committed_only=True, last=last,
        ):  # fmt: skip
            found.append(EpochRecord.decode(*record.payloads))
            segment = max(s.first for s in manifest.segments if s.first <= record.epoch)
            last = (segment, record.end)
        self._last = last
        return found

    def _apply(self, records: Sequence[EpochRecord]) -> None:
        if not records:
            return
        catalog = self._catalog
        restore_entries_of(catalog.codec, records)
        names = {part.relation for r in records for part in r.changes if part.role.is_view}
        nets = {
            name: net_change([part.ordinals() for _, part in parts_of(name, iter(records))])
            for name in sorted(names)
        }
        widened = [catalog.fit(name, rows) for name, net in nets.items() for rows in net]
        if any(widened):
            catalog.relayout()
        for name, (came, went) in nets.items():
            relation = catalog.relations[name]
            dead = catalog.pack(name, went)
            relation.remove(dead)
            relation.add(catalog.pack(name, came), None, None)
            relation.commit()
        self._epoch = records[-1].epoch

    def _records(self, since: int) -> Iterator[EpochRecord]:
        """Yield the records after an epoch, up to the one that views show."""
        manifest = self._manifest
        for record in read_records(self._files, manifest.identity, manifest.segments, since, None):
            if record.epoch > self._epoch:
                return
            yield EpochRecord.decode(*record.payloads)

    def _ask(self, relation: Relation, question: Callable[[Reader], T]) -> T:
        with self._reading:
            return question(StoredReader(self._catalog, relation))


def open_reader(path: str | Path, *, verify: bool = True) -> DatabaseReader:
    """Return the views of the durable database in a folder, for reading beside its writer."""
    return DatabaseReader(path, verify=verify)
