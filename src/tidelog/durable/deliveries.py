"""What a named trigger has delivered, in a file of the database: `trigger-NAME.tide`.

The file has two slots of 4096 bytes, which are written in turn. The valid one with the larger
number counts. So a write that a crash interrupts damages only the slot that was out of date.

| bytes | slot                                    |
| ----- | --------------------------------------- |
| 8     | `TIDETRG` and a line feed               |
| 4     | CRC-32 of what follows, without zeros   |
| 4     | the length of the payload               |
| 8     | the number of the write                 |
|       | the payload, as JSON; zeros to the end  |

Writes are not synced one by one. After a crash of the machine, an older slot may be the last one:
its events are delivered again, with the same ids. The file has no rows, addresses or secrets.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import asdict, dataclass, replace

from tidelog.durable.files import Files
from tidelog.errors import StateError, UsageError

PREFIX = "trigger-"
_HEADER = struct.Struct("<8sIIQ")
_NUMBER = struct.Struct("<Q")
_MAGIC = b"TIDETRG\n"
_SLOT = 4096
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class DeadLetter:
    """An event that could not be delivered, after the last retry."""

    id: str
    """The id of the event; for lost epochs the empty text."""
    epoch: int
    """Its epoch; of lost epochs the last one."""
    attempts: int
    error: str
    """The kind of the last error."""
    at: str
    """When it was given up."""


@dataclass(frozen=True)
class DeliveryRecord:
    """What a trigger has delivered."""

    view: str
    sign: str
    token: str
    """The beginning of the ids of its events."""
    epoch: int
    """All events up to this epoch are delivered, or dead letters."""
    delivered: int = 0
    """How many events have been delivered."""
    failed: int = 0
    """How many have become dead letters."""
    letters: tuple[DeadLetter, ...] = ()
    """The last of them, as many as fit."""


class DeliveryFile:
    """The file of a trigger."""

    def __init__(self, files: Files, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{name!r} is not a name for a trigger"
                "\n  help: use letters, digits, `_`, `-` and `.`, 100 at most"
            )
        self._files, self._name = files, f"{PREFIX}{name}.tide"
        self._file = -1
        self._number = 0

    def read(self) -> DeliveryRecord | None:
        """Return the record; None if there is none. Raises StateError if the file is damaged."""
        if not self._files.exists(self._name):
            return None
        number, record = read_deliveries(self._files, self._name)
        self._number = number
        self._file = self._files.open(self._name)
        return record

    def create(self, record: DeliveryRecord) -> None:
        """Write the first record; it is on disk when this returns."""
        files, new = self._files, f"{self._name}.new"
        file = files.create(new)
        try:
            self._number = 1
            files.write(file, _slot(1, record) + bytes(_SLOT), 0, new)
            files.sync(file, new)
        except BaseException:
            files.close(file)
            raise
        self._file = file
        files.rename(new, self._name)
        files.sync_folder()

    def write(self, record: DeliveryRecord) -> None:
        """Replace the record."""
        number = self._number + 1
        # Write 1 is in the first slot, write 2 in the second one, and so on.
        at = _SLOT * ((number - 1) % 2)
        self._files.write(self._file, _slot(number, record), at, self._name)
        self._number = number

    def close(self) -> None:
        """Sync and close the file."""
        if self._file >= 0:
            file, self._file = self._file, -1
            try:
                self._files.sync(file, self._name)
            finally:
                self._files.close(file)

    def remove(self) -> None:
        """Remove the file."""
        self.close()
        self._files.remove(self._name)


def read_deliveries(files: Files, name: str) -> tuple[int, DeliveryRecord]:
    """Return the number of the last write of a file, and its record."""
    data = files.read(name)
    found = [_read(data[at : at + _SLOT]) for at in range(0, len(data), _SLOT)]
    valid = [slot for slot in found if slot is not None]
    if not valid:
        raise StateError(
            f"`{files.shown(name)}` is damaged: its content does not match its checksum"
            "\n  help: remove the file; the trigger then starts at the current epoch"
        )
    return max(valid, key=lambda slot: slot[0])


def _slot(number: int, record: DeliveryRecord) -> bytes:
    while True:
        payload = json.dumps(asdict(record)).encode()
        if _HEADER.size + len(payload) <= _SLOT:
            break
        if not record.letters:
            raise UsageError("the names of a trigger and its view are too long")
        record = replace(record, letters=record.letters[1:])
    crc = zlib.crc32(payload, zlib.crc32(_NUMBER.pack(number)))
    slot = _HEADER.pack(_MAGIC, crc, len(payload), number) + payload
    return slot.ljust(_SLOT, b"\0")


def _read(slot: bytes) -> tuple[int, DeliveryRecord] | None:
    """Return the content of a slot; None if it is not valid."""
    if len(slot) < _HEADER.size:
        return None
    magic, crc, length, number = _HEADER.unpack_from(slot)
    payload = slot[_HEADER.size : _HEADER.size + length]
    if magic != _MAGIC or zlib.crc32(payload, zlib.crc32(_NUMBER.pack(number))) != crc:
        return None
    data = json.loads(payload)
    letters = tuple(DeadLetter(**letter) for letter in data.pop("letters"))
    return number, DeliveryRecord(**data, letters=letters)
