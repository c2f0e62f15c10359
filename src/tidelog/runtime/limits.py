"""The limits of an epoch: memory, time, levels of a recursion.

An epoch that exceeds a limit ends with a LimitError where it can be aborted: joins check at every
chunk of their output. So an infinite recursion, such as n(x + 1) :- n(x), is stopped, and the
process goes on. Between two checks an epoch may exceed its limit a little.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tidelog.errors import LimitError, UsageError

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(i?)B?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


@dataclass(frozen=True)
class Limits:
    """The limits of an epoch; None: no limit."""

    memory: int | None = None
    """Bytes of the whole process."""
    seconds: float | None = None
    levels: int | None = None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.memory, self.seconds, self.levels))

    def check_level(self, level: int, relations: tuple[str, ...]) -> None:
        """Raise LimitError if a recursion is too deep."""
        if self.levels is not None and level > self.levels:
            raise LimitError(
                f"the recursion of {_shown(relations)} goes beyond {self.levels:,} levels"
                "\n  help: nothing was changed; `level_limit` sets the limit"
            )

    def check(self, seconds: float, relations: tuple[str, ...], level: int) -> None:
        """Raise LimitError if the epoch has taken too long, or the process is too large."""
        where = f" at level {level:,} of {_shown(relations)}" if level else f", {_shown(relations)}"
        if self.seconds is not None and seconds > self.seconds:
            raise LimitError(
                f"the epoch takes more than {self.seconds:g} s{where}"
                "\n  help: nothing was changed; `time_limit` sets the limit"
            )
        if self.memory is not None:
            used = resident_memory()
            if used > self.memory:
                raise LimitError(
                    f"the process takes {used / 1e9:.2f} GB, more than its limit of"
                    f" {self.memory / 1e9:.2f} GB{where}"
                    "\n  help: nothing was changed; `memory_limit` sets the limit"
                )


def _shown(relations: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in relations)


def size_in_bytes(size: int | str | None) -> int | None:
    """Return a size such as "2GB" in bytes; a number is already in bytes.

    >>> size_in_bytes("1.5 GB"), size_in_bytes("1MiB"), size_in_bytes(1000)
    (1500000000, 1048576, 1000)
    """
    if size is None or (isinstance(size, int) and size > 0):
        return size
    found = _SIZE.fullmatch(str(size).strip()) if isinstance(size, str) else None
    if found is None:
        raise UsageError(f"`memory_limit` is a size such as '2GB', not {size!r}")
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** _POWERS[found[2].upper()])


def resident_memory() -> int:
    """Return the memory of this process in bytes; its peak where the system tells only that."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource
        import sys

        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
