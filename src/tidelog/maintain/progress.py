"""How far an epoch has come: counted by the joins, told to whoever wants to know.

Counting costs an addition for each chunk of a join's output. A listener is called a few times a
second at most; what it raises ends the epoch as any other error does, and so does an interrupt.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidelog.maintain.interrupts import Interrupts

_PAUSE = 0.1  # seconds between two calls of the listener


@dataclass(frozen=True)
class Progress:
    """How far an evaluation has come, in the relations that it is busy with."""

    relations: tuple[str, ...]
    level: int
    """The iteration of a recursion; 0 without one."""
    rows: int
    """The rows of the relations after the last iteration; 0 without recursion."""
    touched: int
    """The rule instantiations that joins have enumerated in this epoch."""
    seconds: float
    """Since the epoch began."""

    @property
    def memory(self) -> int:
        """The memory of this process in bytes."""
        return resident_memory()


class Meter:
    """Counts what joins enumerate, and tells a listener."""

    def __init__(self, listener: Callable[[Progress], object] | None = None) -> None:
        self._listener = listener
        self.interrupts = Interrupts()  # those of the epoch at hand
        self.begin()

    def begin(self) -> None:
        """Start to count: an epoch begins."""
        self.touched = 0
        self._relations: tuple[str, ...] = ()
        self._level = self._rows = 0
        self._start = self._told = time.perf_counter()

    def enter(self, relations: tuple[str, ...]) -> None:
        """Note that these relations are computed from now on."""
        self._relations, self._level, self._rows = relations, 0, 0

    def reached(self, level: int, rows: int) -> None:
        """Note that an iteration has ended, and how many rows there are."""
        self._level, self._rows = level, rows
        self.found(0)

    def found(self, instantiations: int) -> None:
        """Count instantiations. An interrupt ends the epoch here, where nothing is half-way."""
        self.touched += instantiations
        self.interrupts.check()
        if self._listener is not None:
            now = time.perf_counter()
            if now - self._told > _PAUSE:
                self._told = now
                self._listener(
                    Progress(
                        self._relations, self._level, self._rows, self.touched, now - self._start
                    )
                )


def resident_memory() -> int:
    """Return the memory of this process in bytes; its largest so far where that is all we know."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource
        import sys

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
