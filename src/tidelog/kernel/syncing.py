"""A loop that lets the disk work while Python computes.

A thread of Python needs Python's lock between any two calls, so one that begins a sync would have
to wait for the very computation that the sync is to go along with. This loop asks for a sync, waits
for it and tells the result without that lock.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types

from tidelog.kernel.memory import load32

FILE, ERROR = range(2)
"""What is asked for: a file, or a negative number for the end; what is told: 0, or an errno."""

_EINTR = 4
_read: Any = types.ExternalFunction("read", types.int64(types.int32, types.voidptr, types.int64))
_write: Any = types.ExternalFunction("write", types.int64(types.int32, types.voidptr, types.int64))
_fdatasync: Any = types.ExternalFunction("fdatasync", types.int32(types.int32))
_errno: Any = types.ExternalFunction("__errno_location", types.int64())


@njit(cache=True, nogil=True)
def sync_when_asked(asked, done, word, job):
    """Sync the file of `job` whenever `asked` is written to, and write to `done`: two eventfds."""
    while True:
        while _read(asked, word.ctypes, 8) != 8:
            pass
        if job[FILE] < 0:
            return
        job[ERROR] = 0
        while _fdatasync(job[FILE]) != 0:
            job[ERROR] = load32(_errno(), 0)
            if job[ERROR] != _EINTR:
                break
            job[ERROR] = 0
        _write(done, word.ctypes, 8)
