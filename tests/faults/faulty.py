"""Files whose calls fail, and machines that stop."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from tidelog.durable.files import Buffer, Files
from tidelog.durable.syncing import Syncing

SECTOR = 512
FAULTS = ("EIO", "ENOSPC", "torn")


class CountingFiles(Files):
    """Counts the calls that change something, and says before each what it is."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.calls = 0
        self.log: list[str] = []

    def before(self, call: str, name: str, undone: Callable[[], object] | None = None) -> None:
        """Note a call; `undone` does half of it."""
        self.calls += 1
        self.log.append(f"{call} {name}")

    def make_folder(self) -> None:
        with self._named("make", ""):
            self.before("make", "")
        super().make_folder()

    def create(self, name: str) -> int:
        with self._named("create", name):
            self.before("create", name)
        return super().create(name)

    def write(self, file: int, data: Buffer, at: int, name: str) -> None:
        half = memoryview(data).cast("B")[: len(memoryview(data).cast("B")) // 2]
        with self._named("write", name):
            self.before("write", name, lambda: os.pwrite(file, half, at))
        super().write(file, data, at, name)

    def sync(self, file: int, name: str) -> None:
        with self._named("sync", name):
            self.before("sync", name)  # and that is all: nobody cuts the power

    def begin_sync(self, file: int, name: str) -> Syncing:
        with self._named("sync", name):
            self.before("begin sync", name)
        return Syncing(file, None)

    def end_sync(self, begun: Syncing, name: str) -> None:
        with self._named("sync", name):
            self.before("end sync", name)

    def truncate(self, file: int, size: int, name: str) -> None:
        with self._named("truncate", name):
            self.before("truncate", name)
        super().truncate(file, size, name)

    def rename(self, old: str, new: str) -> None:
        with self._named("rename", old):
            self.before("rename", old)
        super().rename(old, new)

    def sync_folder(self) -> None:
        with self._named("sync", ""):
            self.before("sync folder", "")

    def remove(self, name: str) -> None:
        with self._named("remove", name):
            self.before("remove", name)
        super().remove(name)


class FailingFiles(CountingFiles):
    """Lets one call fail, the n-th."""

    def __init__(self, folder: Path, fails: int, fault: str) -> None:
        super().__init__(folder)
        self._fails, self._fault = fails, fault
        self.failed = ""

    def before(self, call: str, name: str, undone: Callable[[], object] | None = None) -> None:
        super().before(call, name, undone)
        if self.calls == self._fails:
            self.failed = f"{call} {name}"
            if self._fault == "torn" and undone is not None:
                undone()
            raise OSError(errno.ENOSPC if self._fault == "ENOSPC" else errno.EIO, "it fails")


class Stopped(BaseException):
    """The machine has stopped."""


class StoppingFiles(CountingFiles):
    """Stops at the n-th call, a write half-way; and knows what was on the disk by then.

    On the disk is what was synced: the bytes of a file when the file was, its name when the folder
    was. A sync that was begun has what was written by then, and only when it has ended. Everything
    else may be there or not; `left` makes a folder of the one or the other.
    """

    def __init__(self, folder: Path, stops: int) -> None:
        super().__init__(folder)
        self._stops = stops
        self.stopped = False
        self._synced: dict[int, bytes] = {}  # by the number of the file
        self._names: dict[str, int] = {}  # on the disk
        self._current: dict[str, int] = {}
        self._made = 0
        self._begun: dict[Syncing, bytes] = {}

    def before(self, call: str, name: str, undone: Callable[[], object] | None = None) -> None:
        super().before(call, name, undone)
        if self.stopped or self.calls == self._stops:
            if not self.stopped and undone is not None:
                undone()
            self.stopped = True
            raise Stopped

    def create(self, name: str) -> int:
        file = super().create(name)
        self._made += 1
        self._current[name] = self._made
        return file

    def sync(self, file: int, name: str) -> None:
        super().sync(file, name)
        self._synced[self._current[name]] = (self.folder / name).read_bytes()

    def begin_sync(self, file: int, name: str) -> Syncing:
        begun = super().begin_sync(file, name)
        self._begun[begun] = (self.folder / name).read_bytes()
        return begun

    def end_sync(self, begun: Syncing, name: str) -> None:
        super().end_sync(begun, name)
        self._synced[self._current[name]] = self._begun.pop(begun)

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self._current[new] = self._current.pop(old)

    def sync_folder(self) -> None:
        super().sync_folder()
        self._names = dict(self._current)

    def remove(self, name: str) -> None:
        super().remove(name)
        self._current.pop(name, None)

    def left(self, folder: Path, rng: Random | None = None) -> None:
        """Make a folder of what is on the disk when the power is off.

        With `rng` also of what may be there: any sectors that were written since, in no order.
        """
        folder.mkdir()
        for name, number in self._names.items():
            data = self._synced.get(number, b"")
            if rng is not None and self._current.get(name) == number:
                data = _mixed(data, (self.folder / name).read_bytes(), rng)
            (folder / name).write_bytes(data)


def _mixed(old: bytes, new: bytes, rng: Random) -> bytes:
    """Return a file of which some sectors are still the old ones."""
    size = len(rng.choice((old, new)))
    most = max(len(old), len(new))
    both = old.ljust(most, b"\0"), new.ljust(most, b"\0")
    sectors = (rng.choice(both)[at : at + SECTOR] for at in range(0, most, SECTOR))
    return b"".join(sectors)[:size]
