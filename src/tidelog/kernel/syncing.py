"""A loop that lets the disk work while Python computes.

A thread of Python needs Python's lock between any two calls, so one that begins a sync would have
to wait for the very computation that the sync is to go along with. This loop asks for a sync, waits
for it and tells the result without that lock.

To wake a thread that sleeps takes as long as a third of a sync. So who waits looks again and again
for a while, and lets others run in between; commits that follow each other find nobody asleep.
"""

from __future__ import annotations

from typing import Any

from numba import njit, types

from tidelog.kernel.memory import load32

FILE, ERROR = range(2)
"""What is asked for: a file, or a negative number for the end; what is told: 0, or an errno."""

_EINTR = 4
_POLLIN = 1 << 32  # in a word with a file below: what `poll` takes
_read: Any = types.ExternalFunction("read", types.int64(types.int32, types.voidptr, types.int64))
_write: Any = types.ExternalFunction("write", types.int64(types.int32, types.voidptr, types.int64))
_fdatasync: Any = types.ExternalFunction("fdatasync", types.int32(types.int32))
_poll: Any = types.ExternalFunction("poll", types.int32(types.voidptr, types.uint64, types.int32))
_let_others_run: Any = types.ExternalFunction("sched_yield", types.int32())
_errno: Any = types.ExternalFunction("__errno_location", types.int64())


@njit(cache=True)
def _take(event, looks, word):
    """Wait until an eventfd, which does not block, is written to; sleep after so many looks."""
    while True:
        for _ in range(looks):
            if _read(event, word.ctypes, 8) == 8:
                return
            _let_others_run()
        word[0] = event | _POLLIN
        _poll(word.ctypes, 1, -1)


@njit(cache=True, nogil=True)
def wait_for(event, looks, word):
    """Do what `_take` does, for Python to call."""
    _take(event, looks, word)


@njit(cache=True, nogil=True)
def sync_when_asked(asked, done, looks, word, job):
    """Sync the file of `job` whenever `asked` is written to, and write to `done`: two eventfds."""
    while True:
        _take(asked, looks, word)
        if job[FILE] < 0:
            return
        job[ERROR] = 0
        while _fdatasync(job[FILE]) != 0:
            job[ERROR] = load32(_errno(), 0)
            if job[ERROR] != _EINTR:
                break
            job[ERROR] = 0
        _write(done, word.ctypes, 8)
