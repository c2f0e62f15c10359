"""The time spent on compiling kernels, which does not count towards a time limit."""

from __future__ import annotations

import time
from typing import Any

_clocks: list[Any] = []  # one, after the first call


def preparing_seconds() -> float:
    """Return the seconds that this process has compiled or loaded kernels since the first call."""
    if not _clocks:
        from numba.core import event

        class CompilerClock(event.Listener):
            """Adds up the time in which the compiler is running. Its events can be nested."""

            def __init__(self) -> None:
                self.seconds = 0.0
                self._since = 0.0
                self._depth = 0

            def on_start(self, event: Any) -> None:
                """Start the clock."""
                if not self._depth:
                    self._since = time.perf_counter()
                self._depth += 1

            def on_end(self, event: Any) -> None:
                """Stop the clock."""
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.perf_counter() - self._since

        _clocks.append(CompilerClock())
        event.register("numba:compiler_lock", _clocks[0])  # type: ignore[no-untyped-call]
    return float(_clocks[0].seconds)
