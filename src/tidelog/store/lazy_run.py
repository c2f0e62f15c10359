"""A run that is in files until it is first read.

A database is opened to change or to read a few rows: most of its runs are never used. So a run from
a snapshot knows how many rows it has, and reads its arrays, and checks them, when the first of them
is accessed. From then on it is a run like any other.
"""

from __future__ import annotations

from typing import Any, Protocol

from tidelog.store.run import Counts, Marks, Run, Words

_READ = ("words", "_marks", "_counts")


class RunSource(Protocol):
    """Where the arrays of a run are."""

    @property
    def saved(self) -> Any:
        """What a later snapshot can refer to instead of writing the run again."""

    @property
    def words(self) -> object | None:
        """Where the words alone are, if a file of their own holds them."""

    @property
    def nbytes(self) -> int:
        """The size of the arrays."""

    def read(self) -> tuple[Words, Marks | None, Counts | None]:
        """Return the arrays; raise StateError if they are damaged."""


class LazyRun(Run):
    """A run that has not been read yet."""

    __slots__ = ()  # as many as a run, so that it can become one

    def __init__(self, size: int, dead: int, source: RunSource) -> None:
        put = object.__setattr__
        put(self, "size", size)
        put(self, "dead", dead)
        put(self, "_directory", None)
        put(self, "_shift", 0)
        put(self, "descriptor", None)
        put(self, "trees", {})
        put(self, "saved", source.words)
        put(self, "source", source)

    def __getattr__(self, name: str) -> Any:
        """Read the run: Python calls this for attributes that it does not have yet."""
        if name.startswith("__"):
            raise AttributeError(name)
        LazyRun.read(self)
        return getattr(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        LazyRun.read(self)
        setattr(self, name, value)

    @property
    def nbytes(self) -> int:
        """Return the size of the run's arrays."""
        nbytes: int = self.source.nbytes
        return nbytes

    def read(self) -> None:
        """Read the arrays; raise StateError if they are damaged."""
        source = self.source
        if source is None:
            return  # another thread has just read it
        words, marks, counts = source.read()
        made = Run(words, marks, counts, self.dead)
        for name in _READ:
            object.__setattr__(self, name, getattr(made, name))
        object.__setattr__(self, "__class__", Run)  # last: now nothing is missing
        self.source = None
