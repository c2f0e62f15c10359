"""Sparing collections of garbage in Spark's workers what stays there anyway.

Spark's workers collect after each task. With all that Numba brings that takes as long as a small
epoch, and the next task of the process waits for it. So what is there when a task begins, modules,
kernels, shards, is left out from then on. New things come in the first few tasks only.

Shards have parts that refer to each other: when one is let go, collections look at everything
again, or its memory would never be given back.
"""

from __future__ import annotations

import gc
from typing import ClassVar

_FIRST_TASKS = 6


class Spared:
    """What this process has done about collections."""

    tasks: ClassVar[int] = 0
    """At the beginning of how many tasks something was left out, since all was looked at."""

    @classmethod
    def at_task(cls) -> None:
        """Leave out what is there, at the beginning of a task: Spark has just collected."""
        if cls.tasks < _FIRST_TASKS:
            cls.tasks += 1
            gc.freeze()

    @classmethod
    def nothing(cls) -> None:
        """Have collections look at everything again."""
        if cls.tasks:
            cls.tasks = 0
            gc.unfreeze()
