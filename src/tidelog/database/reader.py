"""Reading a durable database that another process, or another thread, writes to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tidelog.database.past import Past, changes_since
from tidelog.database.view import Change, View
from tidelog.engine.reads import Reader
from tidelog.engine.tree_reads import relation_reader
from tidelog.logic.program import Program, Relation
from tidelog.persist.history import check_retained
from tidelog.persist.state_reader import StateReader

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class DatabaseReader:
    """The views of a durable database at one committed epoch; `refresh` goes to the last one."""

    def __init__(self, path: str | Path, *, verify: bool = True) -> None:
        self._state = StateReader(path, verify=verify)
        self._reading = threading.RLock()

    @property
    def program(self) -> Program:
        """The program whose views these are."""
        return self._state.program

    @property
    def epoch(self) -> int:
        """The epoch that views show."""
        return self._state.epoch

    def view(self, name: str) -> View:
        """Return a relation to read from. It follows the reader: `refresh` changes it."""
        relation = self.program.relation(name)
        return View(relation, self.program.records, partial(self._ask, relation))

    def refresh(self) -> int:
        """Go to the last committed epoch; return its number."""
        with self._reading:
            self._state.refresh()
            return self._state.epoch

    def at(self, epoch: int) -> Past:
        """Return the database as it was at an epoch, for reading, while that is retained."""
        with self._reading:
            state = self._state
            check_retained(epoch, state.oldest_epoch, state.epoch)
            return Past(epoch, state.program, state.catalog, state.records, self._reading)

    def changes(self, view: str, since: int) -> Iterator[tuple[int, Change]]:
        """Return (epoch, change) for each epoch after `since`, up to this one, that changed it."""
        with self._reading:
            state = self._state
            state.program.relation(view)
            check_retained(since, state.oldest_epoch, state.epoch)
            return changes_since(view, state.program, state.catalog.codec, state.records(since))

    def batches(self, view: str, part: int = 0, parts: int = 1) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a view in no particular order, or one of `parts` shares of them."""
        relation = self.program.relation(view)
        with self._reading:
            catalog = self._state.catalog
            yield from relation_reader(catalog, relation).batches(part, parts)

    def __repr__(self) -> str:
        return f"<DatabaseReader {self.program.name}: epoch {self.epoch}>"

    def _ask(self, relation: Relation, question: Callable[[Reader], T]) -> T:
        with self._reading:
            return question(relation_reader(self._state.catalog, relation))


def open_reader(path: str | Path, *, verify: bool = True) -> DatabaseReader:
    """Return the views of a durable database, to be read while another process writes to it."""
    return DatabaseReader(path, verify=verify)
