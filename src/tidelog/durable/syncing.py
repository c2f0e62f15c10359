"""Syncs that go on while something else is computed.

One thread of the process waits in a loop that needs nothing of Python (kernel/syncing.py): it is
asked by one eventfd and answers by another. Where there is no such thing, or somebody else's sync
is under way, the sync is done when it is waited for.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import numpy as np

_sync = getattr(os, "fdatasync", os.fsync)  # not everywhere
_ONE = (1).to_bytes(8, "little")
_STOP = -1
_LOOKS = 600  # of a microsecond or less, before a thread sleeps


class Syncing:
    """A sync that was begun."""

    __slots__ = ("_file", "_helper")

    def __init__(self, file: int, helper: _Helper | None) -> None:
        self._file, self._helper = file, helper

    def wait(self) -> None:
        """Return when everything that was written before it began is on the disk."""
        helper, self._helper = self._helper, None
        if helper is None:
            _sync(self._file)
        else:
            helper.wait()


def begin(file: int) -> Syncing:
    """Begin to bring what was written to a file to the disk. It is waited for exactly once."""
    helper = _found.helper if _found.is_known else _found.find()
    return Syncing(file, helper if helper is not None and helper.asks_for(file) else None)


class _Helper:
    """The thread, and how it is spoken to. It serves one sync at a time."""

    def __init__(self) -> None:
        from tidelog.kernel.syncing import sync_when_asked, wait_for

        self._free = threading.Lock()
        flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK
        self._asked, self._done = os.eventfd(0, flags), os.eventfd(0, flags)
        self._looks = _LOOKS if len(os.sched_getaffinity(0)) > 1 else 1
        self._job = np.full(2, _STOP, np.int64)
        self._word, self._wait_for = np.zeros(1, np.int64), wait_for
        loop = (self._asked, self._done, self._looks, np.zeros(1, np.int64), self._job)
        os.write(self._asked, _ONE)
        sync_when_asked(*loop)  # once around, so that it is compiled, and known to work
        threading.Thread(target=sync_when_asked, args=loop, daemon=True).start()

    def asks_for(self, file: int) -> bool:
        """Begin a sync; return whether that was possible."""
        if not self._free.acquire(blocking=False):
            return False
        self._job[0] = file
        os.write(self._asked, _ONE)
        return True

    def wait(self) -> None:
        """Return at the end of a sync. If this is broken off, nobody uses the helper any more."""
        self._wait_for(self._done, self._looks, self._word)
        error = int(self._job[1])
        self._free.release()
        if error:
            raise OSError(error, os.strerror(error))

    def forget(self) -> None:
        """Close what a new process has got from its parent."""
        os.close(self._asked)
        os.close(self._done)


class _Found:
    """The helper of this process, once somebody has asked for it."""

    helper: _Helper | None
    is_known: bool

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.helper = None
        self.is_known = False
        self._finding = threading.Lock()

    def find(self) -> _Helper | None:
        """Return the helper; None if there cannot be one."""
        with self._finding:
            if not self.is_known:
                with suppress(Exception):  # whatever it is, syncs go without
                    self.helper = _Helper()
                self.is_known = True
            return self.helper

    def forget(self) -> None:
        """Begin anew in a process that was forked: the thread has stayed with the parent."""
        if self.helper is not None:
            self.helper.forget()
        self._begin()


_found = _Found()
os.register_at_fork(after_in_child=_found.forget)
