"""Keep the cost of a task small in the processes that Spark runs Python in.

Two things that Spark's worker does for every task take longer than a small epoch:

- After each task it runs a full collection. With all the objects of Numba it takes as long as a
  small epoch, and the next task of the process waits for it. So at the beginning of a task,
  everything that exists (modules, kernels, shards) is frozen: later collections skip it. Only the
  first few tasks create more long-lived objects. A shard has reference cycles. When a shard is
  dropped, everything is unfrozen again, so that its memory can be freed.
- Before each task it invalidates the caches of imports. PySpark itself is in a ZIP archive there,
  and Python before 3.13 then reads the directory of the archive again, once for every package that
  was imported from it: 0.1 to 0.3 s. Here an archive is read again only if its file has changed.
"""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from typing import ClassVar
from zipimport import zipimporter

_FIRST_TASKS = 6


def begin_task() -> None:
    """Prepare this process, at the beginning of a task."""
    read_archives_once()
    GcFreeze.freeze()


class GcFreeze:
    """What this process has frozen."""

    tasks: ClassVar[int] = 0
    """How many tasks have frozen the heap since it was last unfrozen."""

    @classmethod
    def freeze(cls) -> None:
        """Freeze all objects, in the first few tasks. Spark has just run a collection."""
        if cls.tasks < _FIRST_TASKS:
            cls.tasks += 1
            gc.freeze()

    @classmethod
    def unfreeze(cls) -> None:
        """Let collections examine all objects again."""
        if cls.tasks:
            cls.tasks = 0
            gc.unfreeze()


@cache
def read_archives_once() -> None:
    """Let Python read the directory of a ZIP archive again only if its file has changed."""
    if sys.version_info >= (3, 13):
        return  # it waits until something is imported
    seen: dict[str, tuple[int, int]] = {
        finder.archive: _state_of(finder.archive)
        for finder in sys.path_importer_cache.values()
        if isinstance(finder, zipimporter)
    }
    read_again = zipimporter.invalidate_caches

    def invalidate_caches(self: zipimporter) -> None:
        now = _state_of(self.archive)
        if seen.get(self.archive) != now:
            seen[self.archive] = now
            read_again(self)

    zipimporter.invalidate_caches = invalidate_caches  # type: ignore[method-assign]


def _state_of(path: str) -> tuple[int, int]:
    """Return the time and the size of a file; zeros if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
