"""A loop that lets the disk work while Python computes.

A Python thread needs the GIL between any two calls. So a thread that starts a sync would wait for
the very computation that the sync should overlap with. This loop receives a request, syncs, and
reports the result without the GIL.

Waking a sleeping thread takes a third as long as a sync. So both sides poll for a while before they
sleep, and yield the processor in between. So commits in quick succession wake nobody.
"""

from __future__ import annotations

from typing import Any

from numba import types

from tidelog.kernel.compiling import kernel_without_gil
from tidelog.kernel.pointers import load32

FILE, ERROR = range(2)
"""The request: a file descriptor, or a negative number to stop. The reply: 0, or an errno."""

_EINTR = 4
_POLLIN = 1 << 32  # in a word with a file below: what `poll` takes
_read: Any = types.ExternalFunction("read", types.int64(types.int32, types.voidptr, types.int64))
_write: Any = types.ExternalFunction("write", types.int64(types.int32, types.voidptr, types.int64))
_fdatasync: Any = types.ExternalFunction("fdatasync", types.int32(types.int32))
_poll: Any = types.ExternalFunction("poll", types.int32(types.voidptr, types.uint64, types.int32))
_let_others_run: Any = types.ExternalFunction("sched_yield", types.int32())
_errno: Any = types.ExternalFunction("__errno_location", types.int64())


@kernel_without_gil
def wait_for(event, looks, word):
    """Wait until a non-blocking eventfd is written to; sleep after `looks` polls."""
    while True:
        for _ in range(looks):
            if _read(event, word.ctypes, 8) == 8:
                return
            _let_others_run()
        word[0] = event | _POLLIN
        _poll(word.ctypes, 1, -1)


@kernel_without_gil
def sync_when_asked(asked, done, looks, word, job):
    """Sync the file of `job` whenever `asked` is written to, and write to `done`: two eventfds."""
    while True:
        wait_for(asked, looks, word)
        if job[FILE] < 0:
            return
        job[ERROR] = 0
        while _fdatasync(job[FILE]) != 0:
            job[ERROR] = load32(_errno(), 0)
            if job[ERROR] != _EINTR:
                break
            job[ERROR] = 0
        _write(done, word.ctypes, 8)
