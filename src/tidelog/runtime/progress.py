"""The progress of an epoch: counted by the joins, reported to a listener.

Counting costs an addition for each chunk of a join's output. A listener is called at most a few
times a second. An exception from it aborts the epoch as any other error does, and so does an
interrupt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidelog.runtime.compile_clock import preparing_seconds
from tidelog.runtime.interrupts import Interrupts
from tidelog.runtime.limits import Limits, resident_memory

_PAUSE = 0.1  # seconds between two calls of the listener
LOOK = 0.02  # seconds between two checks of the limits


@dataclass(frozen=True)
class Progress:
    """The progress of an evaluation, in the relations that it is computing."""

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
    """Counts what joins enumerate, checks the limits, and calls a listener."""

    def __init__(
        self,
        listener: Callable[[Progress], object] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._listener = listener
        self._limits = limits
        self._is_timed = limits is not None and limits.seconds is not None
        self.interrupts = Interrupts()  # of the current epoch
        self.start()
        self.begin()

    def start(self) -> None:
        """Start the clock of the time limit: an epoch begins. It may take several attempts.

        The clock stops while kernels are compiled, which is not the program's fault.
        """
        self._started = time.perf_counter()
        if self._is_timed:
            self._started -= preparing_seconds()

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """Suspend the limits: an epoch that was committed before must succeed again."""
        limits, self._limits = self._limits, None
        try:
            yield
        finally:
            self._limits = limits

    def begin(self) -> None:
        """Start counting: an attempt at an epoch begins."""
        self.touched = 0
        self._relations: tuple[str, ...] = ()
        self._level = self._rows = 0
        self._start = self._called = self._looked = time.perf_counter()

    def enter(self, relations: tuple[str, ...]) -> None:
        """Note that these relations are computed from now on."""
        self._relations, self._level, self._rows = relations, 0, 0

    def reached(self, level: int, rows: int) -> None:
        """Note that an iteration has ended, and how many rows there are."""
        self._level, self._rows = level, rows
        if self._limits is not None:
            # It began because the one before had found rows.
            self._limits.check_level(level - 1, self._relations)
        self.found(0)

    def settles(self, level: int) -> None:
        """Note that an update settles the rows of a level."""
        if self._limits is not None:
            self._limits.check_level(level, self._relations)

    def found(self, instantiations: int) -> None:
        """Count instantiations. Interrupts are raised here, where the state is consistent."""
        self.touched += instantiations
        self.interrupts.check()
        if self._limits is not None:
            now = time.perf_counter()
            if now - self._looked > LOOK:
                self._looked = now
                seconds = now - self._started
                if self._is_timed:
                    seconds -= preparing_seconds()
                self._limits.check(seconds, self._relations, self._level)
        if self._listener is not None:
            now = time.perf_counter()
            if now - self._called > _PAUSE:
                self._called = now
                self._listener(
                    Progress(
                        self._relations, self._level, self._rows, self.touched, now - self._start
                    )
                )
