"""Follows the files of a durable database that another process, or another thread, writes to.

A reader takes no lock. It reads the last snapshot, and applies the log from there: views are the
rows of the snapshot and the changes of the epochs since. Files that the writer removes meanwhile
stay readable as long as they are mapped; those that are gone before they were read are looked for
in the newer manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tidelog.durable import manifest as manifests
from tidelog.durable.epochs import EpochRecord, NewProgram, PackedChange, Role
from tidelog.durable.extents import Arrays
from tidelog.durable.files import Files
from tidelog.durable.log_reading import read_published, read_records
from tidelog.durable.manifest import Manifest
from tidelog.durable.saved import load_index
from tidelog.engine.state import OtherShapeError, restore_relations, strategies_of
from tidelog.engine.tree_reads import stored_rows
from tidelog.errors import StateError, UsageError
from tidelog.logic.program import Program
from tidelog.persist.replay import net_change, restore_entries_of
from tidelog.plan.planned import planned
from tidelog.store.catalog import Catalog
from tidelog.store.codec import Codec

_ATTEMPTS = 20  # to read a state whose files are being replaced


class StateReader:
    """The stored views of a durable database at one committed epoch."""

    def __init__(self, path: str | Path, *, verify: bool = True) -> None:
        self._files = Files(path)
        self._verify = verify
        if not self._files.exists(manifests.NAME):
            raise UsageError(f"there is no database in `{path}`")
        self._manifest: Manifest
        self.program: Program
        self.catalog: Catalog
        """The views at the epoch, in one order."""
        self.epoch = -1
        self._last: tuple[int, int] | None = None  # where the record of that epoch ends
        self.refresh()

    @property
    def oldest_epoch(self) -> int:
        """The first epoch whose changes after it are all retained."""
        return self._manifest.segments[0].first - 1

    def refresh(self) -> None:
        """Go to the last committed epoch."""
        for attempt in range(_ATTEMPTS):
            try:
                self._follow()
                return
            except StateError:
                # The writer may have removed a file that the manifest named a moment ago.
                if attempt == _ATTEMPTS - 1 or not self._is_replaced():
                    raise

    def records(self, since: int) -> Iterator[EpochRecord]:
        """Yield the records after an epoch, up to the one that views show."""
        manifest = self._manifest
        for record in read_records(self._files, manifest.identity, manifest.segments, since, None):
            if record.epoch > self.epoch:
                return
            yield EpochRecord.decode(*record.payloads)

    def _is_replaced(self) -> bool:
        """Return whether there is another manifest than the one that was read."""
        return not hasattr(self, "_manifest") or manifests.read(self._files) != self._manifest

    def _follow(self) -> None:
        manifest = manifests.read(self._files)
        known = self.epoch >= 0 and manifest.identity == self._manifest.identity
        previous, self._manifest = self._manifest if known else manifest, manifest
        if not known or manifest.segments[0].first > self.epoch + 1:
            self._load(manifest)
        try:
            records = self._new_records(manifest)
        except StateError:
            self._manifest = previous
            raise
        try:
            self._apply(records)
        except BaseException:
            self.epoch = -1  # some of it may be applied: start again
            raise

    def _load(self, manifest: Manifest) -> None:
        """Read the snapshot."""
        program = Program.parse(manifest.program, manifest.program_name)
        saved = load_index(self._files, manifest.snapshot)
        strategies = strategies_of(saved, program)
        catalog = Catalog(planned(program, strategies), Codec(program.records))
        catalog.has_reducts = False
        arrays = Arrays(self._files, manifest.identity, verify=self._verify)
        try:
            restore_relations(catalog, saved, arrays, rows_only=True)
        except OtherShapeError:
            raise StateError(
                f"`{self._files.folder}` was written by another version of Tidelog"
                "\n  help: open it for writing once"
            ) from None
        self.program, self.catalog = program, catalog
        self.epoch, self._last = saved.epoch, None

    def _new_records(self, manifest: Manifest) -> list[EpochRecord]:
        published = read_published(self._files, manifest.identity)
        found, last = [], self._last
        for record in read_records(
            self._files, manifest.identity, manifest.segments, self.epoch, published,
            committed_only=True, last=last,
        ):  # fmt: skip
            found.append(EpochRecord.decode(*record.payloads))
            segment = max(s.first for s in manifest.segments if s.first <= record.epoch)
            last = (segment, record.end)
        self._last = last
        return found

    def _apply(self, records: Sequence[EpochRecord]) -> None:
        """Apply epochs; those between two changes of the program at once."""
        group: list[EpochRecord] = []
        for record in records:
            if record.program is not None:
                self._apply_group(group)
                self._become(record.program)
                group = []
            group.append(record)
        self._apply_group(group)

    def _become(self, new: NewProgram) -> None:
        """Go over to another program: views that both have keep their rows."""
        old, before = self.program, self.catalog
        program = Program.parse(new.text, new.name)
        before.codec.add_records(program.records)
        catalog = Catalog(planned(program, new.strategies), before.codec)
        catalog.has_reducts = False
        rows = {}
        for name in program.relations.keys() & old.relations.keys():
            is_stored, was_stored = (c.is_stored(name) for c in (catalog, before))
            if not is_stored and was_stored and name in before.derived:
                raise StateError(
                    f"`{name}` is not stored any more, since its rules have changed"
                    "\n  help: a snapshot lets it be read again"
                )
            if is_stored and before.is_virtual(name):
                raise StateError(
                    f"`{name}` is stored now, but was virtual, so its rows are not in the log"
                    "\n  help: a snapshot lets it be read"
                )
            held = stored_rows(before, old.relations[name]) if is_stored else before.given[name]
            rows[name] = held.ordinals(held.rows())
            catalog.fit(name, rows[name])
        catalog.relayout()
        for name, ordinals in rows.items():
            into = (catalog.relations if catalog.is_stored(name) else catalog.given)[name]
            into.replace(catalog.pack(name, ordinals), None, None)
        self.program, self.catalog = program, catalog

    def _apply_group(self, records: Sequence[EpochRecord]) -> None:
        if not records:
            return
        catalog = self.catalog
        restore_entries_of(catalog.codec, records)
        parts: dict[str, list[PackedChange]] = {}
        for part in (part for record in records for part in record.changes):
            # Of a relation whose rows are not stored, the given rows are followed.
            is_stored = catalog.is_stored(part.relation)
            if part.role.is_view if is_stored else part.role is Role.GIVEN:
                parts.setdefault(part.relation, []).append(part)
        nets = {
            name: net_change([part.ordinals() for part in parts[name]]) for name in sorted(parts)
        }
        widened = [catalog.fit(name, rows) for name, net in nets.items() for rows in net]
        if any(widened):
            catalog.relayout()
        for name, (inserted, deleted) in nets.items():
            relation = (catalog.relations if catalog.is_stored(name) else catalog.given)[name]
            relation.remove(catalog.pack(name, deleted))
            relation.add(catalog.pack(name, inserted), None, None)
            relation.commit()
        self.epoch = records[-1].epoch
