"""The committed epochs of a sharded pipeline: one file for each, written once.

    epochs/000000000017.json     shards, offsets and counts that changed, files with view changes
    shards/3/..                  the files of a shard (sharding/shard_state.py)
    changes/..                   the changes of an epoch to the views of sinks, a Parquet file for
                                 each shard, with the columns `op` and `epoch`
    memory/..                    all offsets and counts, every 64 epochs

An epoch is committed when its file exists. The file is written under a temporary name, synced and
then linked: the link fails if another process has committed the epoch. Files that no epoch names
come from tasks that failed, ran twice or were late. They are ignored and later removed.
"""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tidelog.errors import StateError
from tidelog.io.atomic import sync_folder, write_synced
from tidelog.io.offsets import RowCounts, SourceOffsets
from tidelog.sharding.shard_state import ShardRef

FORMAT = 1
_FIELDS = {"marks": "offsets", "memory": "offsets_file", "memory_epoch": "offsets_epoch"}
_NAMES = {name: key for key, name in _FIELDS.items()}  # of fields in files
_EVERY = 64  # epochs until all offsets are written again


@dataclass(frozen=True)
class Committed:
    """One committed epoch."""

    epoch: int
    identity: str
    program: str
    program_name: str
    sides: tuple[int, ...]
    plan: tuple[str, ...]
    """The variants of all relations. They differ if another version of Tidelog wrote the state."""
    shards: tuple[ShardRef, ...]
    offsets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Offsets that changed in this epoch, by source and item."""
    counts: Mapping[str, RowCounts] = field(default_factory=dict)
    """Rows of this epoch, by source."""
    offsets_file: str = ""
    """The file with all offsets and counts up to `offsets_epoch`; empty if there is none."""
    offsets_epoch: int = -1
    views: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The files with the changes of each watched view that changed."""
    watched: tuple[str, ...] = ()
    """The views whose changes are in files."""
    view_rows: Mapping[str, int] = field(default_factory=dict)
    """How many rows these files have, for each view that changed."""


class Epochs:
    """The committed epochs of a pipeline, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._epochs = folder / "epochs"

    def numbers(self) -> list[int]:
        """Return the numbers of the retained epochs, in ascending order."""
        if not self._epochs.is_dir():
            return []
        names = (path.stem for path in self._epochs.glob("*.json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def read(self, epoch: int) -> Committed:
        """Return a committed epoch; raise StateError if its file is damaged."""
        path = self._path(epoch)
        try:
            head, _, body = path.read_bytes().partition(b"\n")
        except OSError as error:
            raise StateError(f"cannot read `{path}`: {error.strerror}") from error
        words = head.decode(errors="replace").split(" ")
        if words[:3] != ["tidelog", "epoch", str(FORMAT)] or words[3:] != [_check(body)]:
            raise StateError(f"`{path}` is damaged: its checksum is wrong")
        data = {_FIELDS.get(name, name): value for name, value in json.loads(body).items()}
        return Committed(
            **{
                **data,
                "sides": tuple(data["sides"]),
                "plan": tuple(data["plan"]),
                "shards": tuple(map(ShardRef.from_data, data["shards"])),
                "counts": {name: RowCounts(**count) for name, count in data["counts"].items()},
                "views": {name: tuple(files) for name, files in data["views"].items()},
                "watched": tuple(data["watched"]),
            }
        )

    def commit(self, epoch: Committed) -> None:
        """Commit an epoch; raise StateError if another process has committed it."""
        data = {
            **{_NAMES.get(name, name): value for name, value in vars(epoch).items()},
            "shards": [ref.as_data() for ref in epoch.shards],
            "counts": {name: asdict(count) for name, count in epoch.counts.items()},
        }
        body = json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode()
        head = f"tidelog epoch {FORMAT} {_check(body)}\n".encode()
        try:
            hidden = self._epochs / f".{epoch.epoch}.{secrets.token_hex(6)}.tmp"
            write_synced(hidden, head + body)
            try:
                os.link(hidden, self._path(epoch.epoch))
            finally:
                hidden.unlink()
            sync_folder(self._epochs)
        except FileExistsError:
            raise StateError(
                f"epoch {epoch.epoch} of `{self.folder}` was committed by another process"
                "\n  help: only one process may run a pipeline at a time"
            ) from None
        except OSError as error:
            raise StateError(
                f"cannot commit epoch {epoch.epoch} in `{self.folder}`: {error.strerror}"
            ) from error

    def _path(self, epoch: int) -> Path:
        return self._epochs / f"{epoch:012}.json"

    # --- offsets and counts ---

    def read_offsets(self, last: Committed) -> SourceOffsets:
        """Return all offsets and counts after an epoch."""
        offsets = SourceOffsets()
        if last.offsets_file:
            data = json.loads((self.folder / last.offsets_file).read_bytes())
            offsets.add(data["offsets"], {n: RowCounts(**c) for n, c in data["counts"].items()})
        for number in range(last.offsets_epoch + 1, last.epoch + 1):
            epoch = last if number == last.epoch else self.read(number)
            offsets.add(epoch.offsets, epoch.counts)
        return offsets

    def write_offsets(self, offsets: SourceOffsets) -> str:
        """Write all offsets and counts; return the name of the file."""
        name = f"memory/{secrets.token_hex(12)}.json"
        data = asdict(offsets)
        write_synced(self.folder / name, json.dumps(data).encode())
        sync_folder(self.folder / "memory")
        return name

    def offsets_due(self, epoch: int, before: Committed | None) -> bool:
        """Return whether all offsets must be written with an epoch."""
        return before is not None and epoch - before.offsets_epoch > _EVERY

    # --- folders and removal ---

    def make_folders(self, shards: int) -> None:
        """Make and sync the folders, so that a synced file in one of them is durable."""
        parts = [self.folder / "shards" / str(number) for number in range(shards)]
        for folder in (self._epochs, self.folder / "changes", self.folder / "memory", *parts):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder / "shards", self.folder, self.folder.parent):
            sync_folder(folder)

    def forget(self, last: Committed, retain_epochs: int) -> None:
        """Remove epochs that are no longer retained, and their files."""
        oldest = min(last.epoch - retain_epochs, last.offsets_epoch + 1)
        for number in self.numbers():
            if number < oldest:
                self._path(number).unlink(missing_ok=True)
        for path in (self.folder / "changes").iterdir():
            if int(path.name.partition("-")[0]) < oldest:
                path.unlink(missing_ok=True)
        self._remove_others(self.folder / "memory", {last.offsets_file})

    def clean(self, last: Committed, retain_epochs: int) -> None:
        """Remove all files that no retained epoch names."""
        self.forget(last, retain_epochs)
        epochs = (last if n == last.epoch else self.read(n) for n in self.numbers())
        kept = {name for epoch in epochs for names in epoch.views.values() for name in names}
        self._remove_others(self.folder / "changes", kept)
        for number, ref in enumerate(last.shards):
            self.clean_shard(number, ref)

    def clean_shard(self, number: int, ref: ShardRef) -> None:
        """Remove the files that a shard no longer needs."""
        mine = self.folder / "shards" / str(number)
        self._remove_others(mine, {f"shards/{number}/{name}" for name in ref.names()})

    def _remove_others(self, folder: Path, kept: Iterable[str]) -> None:
        names = set(kept)
        if folder.is_dir():
            for path in folder.iterdir():
                if str(path.relative_to(self.folder)) not in names:
                    with suppress(OSError):
                        path.unlink()


def _check(body: Any) -> str:
    return f"{zlib.crc32(body):08x}"
