"""What is committed of a sharded pipeline: a file for each epoch, made once.

    epochs/000000000017.json     shards, offsets and counts that changed, files with view changes
    shards/3/..                  the files of a shard (engine/shard_state.py)
    changes/..                   what an epoch changed in the views of sinks, shard by shard
    memory/..                    all offsets and counts, now and then

An epoch is committed when its file is there. It is written under another name, synced and then
linked: the link fails if somebody else has committed the epoch. All that no epoch names is of no
account: left by tasks that failed, ran twice or came too late.
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

from tidelog.engine.shard_state import ShardRef
from tidelog.errors import StateError
from tidelog.spark.files import sync_folder, write_synced
from tidelog.spark.remembered import Count, Memory

FORMAT = 1
_EVERY = 64  # epochs until all offsets are written down again


@dataclass(frozen=True)
class Committed:
    """One committed epoch."""

    epoch: int
    identity: str
    program: str
    program_name: str
    sides: tuple[int, ...]
    plan: tuple[str, ...]
    """The versions of all relations, to notice that another Tidelog places rows elsewhere."""
    shards: tuple[ShardRef, ...]
    marks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Offsets that changed in this epoch, by source and item."""
    counts: Mapping[str, Count] = field(default_factory=dict)
    """Rows of this epoch, by source."""
    memory: str = ""
    """The file with all offsets and counts of an earlier epoch, or of this one; it may be none."""
    memory_epoch: int = -1
    views: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """For each watched view that changed the files that tell how."""
    watched: tuple[str, ...] = ()
    """The views whose changes were written down."""


class Epochs:
    """The committed epochs of a pipeline, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._epochs = folder / "epochs"

    def numbers(self) -> list[int]:
        """Return the numbers of the epochs that are kept, in order."""
        if not self._epochs.is_dir():
            return []
        names = (path.stem for path in self._epochs.glob("*.json"))
        return sorted(int(name) for name in names if name.isdecimal())

    def read(self, epoch: int) -> Committed:
        """Return what is committed of an epoch; raise StateError if its file is damaged."""
        path = self._path(epoch)
        try:
            head, _, body = path.read_bytes().partition(b"\n")
        except OSError as error:
            raise StateError(f"cannot read `{path}`: {error.strerror}") from error
        words = head.decode(errors="replace").split(" ")
        if words[:3] != ["tidelog", "epoch", str(FORMAT)] or words[3:] != [_check(body)]:
            raise StateError(f"`{path}` is damaged: it is not what was written")
        data = json.loads(body)
        return Committed(
            **{
                **data,
                "sides": tuple(data["sides"]),
                "plan": tuple(data["plan"]),
                "shards": tuple(map(ShardRef.from_data, data["shards"])),
                "counts": {name: Count(**count) for name, count in data["counts"].items()},
                "views": {name: tuple(files) for name, files in data["views"].items()},
                "watched": tuple(data["watched"]),
            }
        )

    def commit(self, epoch: Committed) -> None:
        """Commit an epoch; raise StateError if that is done already, by somebody else."""
        data = {
            **vars(epoch),
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
                "\n  help: a pipeline is run by one process at a time"
            ) from None
        except OSError as error:
            raise StateError(
                f"cannot commit epoch {epoch.epoch} in `{self.folder}`: {error.strerror}"
            ) from error

    def _path(self, epoch: int) -> Path:
        return self._epochs / f"{epoch:012}.json"

    # --- offsets and counts ---

    def memory(self, last: Committed) -> Memory:
        """Return all offsets and counts, as they are after an epoch."""
        memory = Memory()
        if last.memory:
            data = json.loads((self.folder / last.memory).read_bytes())
            memory.add(data["offsets"], {n: Count(**c) for n, c in data["counts"].items()})
        for number in range(last.memory_epoch + 1, last.epoch + 1):
            epoch = last if number == last.epoch else self.read(number)
            memory.add(epoch.marks, epoch.counts)
        return memory

    def write_memory(self, memory: Memory) -> str:
        """Write all offsets and counts down; return the name of the file."""
        name = f"memory/{secrets.token_hex(12)}.json"
        data = asdict(memory)
        write_synced(self.folder / name, json.dumps(data).encode())
        sync_folder(self.folder / "memory")
        return name

    def is_time(self, epoch: int, before: Committed | None) -> bool:
        """Return whether an epoch is to have all offsets written down."""
        return before is not None and epoch - before.memory_epoch > _EVERY

    # --- folders, and the end of epochs ---

    def make_folders(self, shards: int) -> None:
        """Make the folders, so that files in them stay once they are synced."""
        parts = [self.folder / "shards" / str(number) for number in range(shards)]
        for folder in (self._epochs, self.folder / "changes", self.folder / "memory", *parts):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.folder / "shards", self.folder, self.folder.parent):
            sync_folder(folder)

    def forget(self, last: Committed, retain_epochs: int) -> None:
        """Remove epochs that are not kept any more, and what belongs to them."""
        oldest = min(last.epoch - retain_epochs, last.memory_epoch + 1)
        for number in self.numbers():
            if number < oldest:
                self._path(number).unlink(missing_ok=True)
        for path in (self.folder / "changes").iterdir():
            if int(path.name.partition("-")[0]) < oldest:
                path.unlink(missing_ok=True)
        self._remove_others(self.folder / "memory", {last.memory})

    def clean(self, last: Committed, retain_epochs: int) -> None:
        """Remove all that no epoch names which is kept."""
        self.forget(last, retain_epochs)
        epochs = (last if n == last.epoch else self.read(n) for n in self.numbers())
        kept = {name for epoch in epochs for names in epoch.views.values() for name in names}
        self._remove_others(self.folder / "changes", kept)
        for number, ref in enumerate(last.shards):
            self.clean_shard(number, ref)

    def clean_shard(self, number: int, ref: ShardRef) -> None:
        """Remove the files of a shard that it does not need any more."""
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
