"""Ctrl-C and epochs: an interrupt ends an epoch in the making, and never one that is being kept.

Python raises KeyboardInterrupt between any two instructions, also where marks of rows have been
overwritten and the log of it is not yet written. So while an epoch is under way an interrupt is
only noted, and raised where nothing is half-way: joins ask at every chunk of their output, and the
join kernel comes back to them at least every 20 million steps.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

try:
    # What `signal` wraps. It makes enums of all handlers: 20 us for a transaction that takes 200.
    import _signal as raw  # type: ignore[import-not-found]
except ImportError:
    raw = signal

_SIGINT = int(signal.SIGINT)


class Interrupts:
    """Notes interrupts within its block. What came after the last `check` follows at its end.

    Only the main thread receives interrupts, so in any other this does nothing.
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
        """Let interrupts through for a while, in which nothing is changed."""
        was_held = self._handler is not None
        try:
            self._release()
            yield
        finally:
            if was_held:  # an epoch that ends here is still to be undone
                self._hold()

    def _hold(self) -> None:
        if threading.get_ident() == threading.main_thread().ident:
            handler = raw.getsignal(_SIGINT)
            if callable(handler):  # else interrupts are ignored, or end the process
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
