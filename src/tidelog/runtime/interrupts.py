"""Ctrl-C and epochs: an interrupt can end an epoch that is computed, never one that is committed.

Python raises KeyboardInterrupt between any two instructions, also where marks of rows have been
overwritten and their undo entries are not yet written. So during an epoch an interrupt is only
noted, and raised where the state is consistent: joins check at every chunk of their output, and the
join kernel returns at least every 20 million steps.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

try:
    # `signal` wraps this, and makes enums of all handlers: 20 us in a transaction of 200 us.
    import _signal as raw  # type: ignore[import-not-found]
except ImportError:
    raw = signal

_SIGINT = int(signal.SIGINT)


class Interrupts:
    """Notes interrupts within its block. One after the last `check` is raised when the block ends.

    Only the main thread receives interrupts, so in other threads this does nothing.
    """

    def __init__(self) -> None:
        self.received = False
        self._handler: Any = None

    def __enter__(self) -> Interrupts:
        self._hold()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._release()

    def check(self) -> None:
        """Raise an interrupt that was noted."""
        if self.received:
            self.received = False
            self._handler(_SIGINT, None)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let interrupts through within a block that changes nothing."""
        was_held = self._handler is not None
        try:
            self._release()
            yield
        finally:
            if was_held:  # the epoch is still to be aborted
                self._hold()

    def _hold(self) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            handler = raw.getsignal(_SIGINT)
            if callable(handler):  # otherwise interrupts are ignored, or end the process
                self._handler = handler
                raw.signal(_SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received = True

    def _release(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            raw.signal(_SIGINT, handler)
            if self.received:
                self.received = False
                handler(_SIGINT, None)
