"""Syncs in the background, so that a commit computes views while the disk works.

One thread per process runs a compiled loop without the GIL (kernel/syncing.py). It is woken through
one eventfd, and reports through another. On systems without eventfd, or while another sync is
running, the sync is done in `wait` instead.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import numpy as np

_sync = getattr(os, "fdatasync", os.fsync)  # not every system has fdatasync
_ONE = (1).to_bytes(8, "little")
_STOP = -1
_POLLS = 600  # of a microsecond or less each, before a thread sleeps


class Syncing:
    """A sync that has begun."""

    __slots__ = ("_file", "_thread")

    def __init__(self, file: int, thread: _SyncThread | None) -> None:
        self._file, self._thread = file, thread

    def wait(self) -> None:
        """Return when everything written before it began is on disk."""
        thread, self._thread = self._thread, None
        if thread is None:
            _sync(self._file)
        else:
            thread.wait()


def begin(file: int) -> Syncing:
    """Begin to sync a file. The caller must wait for it exactly once."""
    thread = _process.thread if _process.is_started else _process.start()
    return Syncing(file, thread if thread is not None and thread.begin(file) else None)


class _SyncThread:
    """The thread, and the calls to it. It runs one sync at a time."""

    def __init__(self) -> None:
        from tidelog.kernel.syncing import sync_when_asked, wait_for

        self._free = threading.Lock()
        flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK
        self._asked, self._done = os.eventfd(0, flags), os.eventfd(0, flags)
        self._polls = _POLLS if len(os.sched_getaffinity(0)) > 1 else 1
        self._job = np.full(2, _STOP, np.int64)
        self._word, self._wait_for = np.zeros(1, np.int64), wait_for
        loop = (self._asked, self._done, self._polls, np.zeros(1, np.int64), self._job)
        os.write(self._asked, _ONE)
        sync_when_asked(*loop)  # one iteration, to compile it and to see that it works
        threading.Thread(target=sync_when_asked, args=loop, daemon=True).start()

    def begin(self, file: int) -> bool:
        """Begin a sync; return False if another one is running."""
        if not self._free.acquire(blocking=False):
            return False
        self._job[0] = file
        os.write(self._asked, _ONE)
        return True

    def wait(self) -> None:
        """Return at the end of a sync. If this is interrupted, the thread is never used again."""
        self._wait_for(self._done, self._polls, self._word)
        error = int(self._job[1])
        self._free.release()
        if error:
            raise OSError(error, os.strerror(error))

    def close(self) -> None:
        """Close the file descriptors, in a forked process that inherited them."""
        os.close(self._asked)
        os.close(self._done)


class _Process:
    """The sync thread of this process, started with the first sync."""

    thread: _SyncThread | None
    is_started: bool

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.thread = None
        self.is_started = False
        self._starting = threading.Lock()

    def start(self) -> _SyncThread | None:
        """Start the thread, unless it is running; return None if that is impossible."""
        with self._starting:
            if not self.is_started:
                with suppress(Exception):  # whatever fails, syncs work without the thread
                    self.thread = _SyncThread()
                self.is_started = True
            return self.thread

    def after_fork(self) -> None:
        """Reset a forked process: the thread exists only in its parent."""
        if self.thread is not None:
            self.thread.close()
        self._reset()


_process = _Process()
os.register_at_fork(after_in_child=_process.after_fork)
