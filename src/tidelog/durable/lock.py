"""The writer lock: one writer at a time for each folder.

The lock belongs to the open file, so the operating system releases it however the process ends. The
content of the file is only for the error message of the next writer.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import socket
import weakref

from tidelog.durable.files import Files
from tidelog.errors import StateError

NAME = "LOCK"


class WriterLock:
    """The right to write to a folder, until it is released."""

    def __init__(self, files: Files) -> None:
        try:
            file = os.open(files.folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StateError(f"cannot open `{files.shown(NAME)}`: {error.strerror}") from error
        self._release = weakref.finalize(
            self, os.close, file
        )  # also if the lock is garbage-collected
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(file, 1000, 0).decode(errors="replace").strip()
            self.release()
            raise StateError(
                f"`{files.folder}` is open for writing, by {owner or 'another process'}"
                "\n  help: a database has one writer; others read it with `tidelog.open_reader`"
            ) from None
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        os.ftruncate(file, 0)
        owner = f"process {os.getpid()} on {socket.gethostname()} since {now}\n"
        os.pwrite(file, owner.encode(), 0)

    def release(self) -> None:
        """Release the lock."""
        self._release()
