"""Where the parts of the last epoch are in a log, and what a power cut may leave of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidelog.durable import manifest as manifests
from tidelog.durable.files import Files
from tidelog.durable.framing import GIVEN, VIEW, Record, scan
from tidelog.durable.log_reading import HEADER, read_published


@dataclass(frozen=True)
class LastEpoch:
    """The two parts of the last epoch in a folder."""

    log: Path
    given: Record
    view: Record

    def keep(self, end: int) -> None:
        """Have zeros in the log from a place on, as where nothing has been written yet."""
        data = self.log.read_bytes()
        self.log.write_bytes(data[:end] + bytes(len(data) - end))


def records(folder: Path) -> tuple[Path, list[Record]]:
    """Return the log that is being written, and its records, each part by itself."""
    manifest = manifests.read(Files(folder))
    log = folder / manifest.segments[-1].name
    data = memoryview(log.read_bytes())
    return log, list(scan(data[HEADER:], HEADER, HEADER, str(log)))


def last_epoch(folder: Path) -> LastEpoch:
    """Return the parts of the last epoch, which was written in two."""
    log, found = records(folder)
    given, view = found[-2:]
    assert (given.kind, view.kind) == (GIVEN, VIEW)
    assert given.epoch == view.epoch
    return LastEpoch(log, given, view)


def published_end(folder: Path) -> int:
    """Return how many bytes of the log are known to be on the disk."""
    files = Files(folder)
    published = read_published(files, manifests.read(files).identity)
    assert published is not None
    return published.durable
