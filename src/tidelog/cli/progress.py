"""The progress line of `tidelog run`, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

    from tidelog.runtime.progress import Progress

_QUIET = 1.0  # seconds before anything is shown


@contextmanager
def shown_progress() -> Iterator[ProgressLine | None]:
    """Yield the line, or None without a terminal, and clear it at the end."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console

    line = ProgressLine(Console(stderr=True))
    try:
        yield line
    finally:
        line.close()


class ProgressLine:
    """One line that is overwritten as the evaluation proceeds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def __call__(self, progress: Progress) -> None:
        """Show the progress, if the evaluation has taken a while."""
        if progress.seconds < _QUIET:
            return
        if self._live is None:
            from rich.live import Live

            self._live = Live(console=self._console, transient=True, auto_refresh=False)
            self._live.start()
        from rich.text import Text

        text = Text(describe(progress), no_wrap=True, overflow="ellipsis")
        self._live.update(text, refresh=True)

    def close(self) -> None:
        """Clear the line."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def describe(progress: Progress) -> str:
    """Return the progress as text."""
    parts = [", ".join(progress.relations)]
    if progress.level:
        parts += [f"level {progress.level:,}", f"{progress.rows:,} rows"]
    parts += [
        f"{progress.touched:,} instantiations",
        f"{progress.seconds:.0f} s",
        f"{progress.memory / 1e6:,.0f} MB",
    ]
    return " · ".join(parts)
