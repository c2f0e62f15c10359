"""What a database needs from the engine under it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, Protocol

from tidelog.engine.reads import Reader, SetReader
from tidelog.engine.report import EpochReport
from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import Records
from tidelog.logic.program import Program, Relation
from tidelog.logic.signs import Signs
from tidelog.runtime.interrupts import Interrupts
from tidelog.values.types import Row

Requested = set[Row] | CheckedTable
"""Rows that a transaction inserts, or deletes, into one relation."""


class NetChange:
    """The rows that an epoch adds to and removes from one relation; the two are disjoint.

    An engine may store them in its own form (engine/changed_rows.py).
    """

    __slots__ = ("_deleted", "_inserted")

    def __init__(
        self, inserted: frozenset[Row] = frozenset(), deleted: frozenset[Row] = frozenset()
    ) -> None:
        self._inserted, self._deleted = inserted, deleted

    @property
    def inserted(self) -> frozenset[Row]:
        """The inserted rows."""
        return self._inserted

    @property
    def deleted(self) -> frozenset[Row]:
        """The deleted rows."""
        return self._deleted

    def readers(self, relation: Relation, records: Records) -> tuple[Reader, Reader]:
        """Return readers for the inserted and the deleted rows."""
        return (
            SetReader(self.inserted, relation, records), SetReader(self.deleted, relation, records),
        )  # fmt: skip

    @property
    def signs(self) -> Signs:
        """Whether there are inserted rows, and deleted ones; known without decoding any."""
        return Signs.of(inserted=bool(self._inserted), deleted=bool(self._deleted))

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted)


@dataclass(frozen=True)
class Ignored:
    """Rows of a transaction that changed nothing: inserted but present, deleted but not given.

    Rows of an Arrow table are not listed here.
    """

    inserted: frozenset[Row] = frozenset()
    deleted: frozenset[Row] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted)


class Effects(NamedTuple):
    """What an epoch did: the net changes, and the rows that changed nothing."""

    changes: Mapping[str, NetChange]
    ignored: Mapping[str, Ignored]
    late: Mapping[str, int] = MappingProxyType({})
    """How many rows were too old to be retained, and not inserted, by relation."""


class Answer(NamedTuple):
    """The answers to a query."""

    relation: Relation
    """Its columns are the variables of the query."""
    reader: Reader


class EpochObserver(Protocol):
    """Is called at the steps of each epoch of an engine. What it raises aborts the epoch."""

    def given(self) -> None:
        """Note that the given rows are known, and no view is computed yet: once in an epoch."""

    def computed(self) -> None:
        """Note that all views are computed, and nothing is committed yet."""

    def undone(self) -> None:
        """Note that the epoch has failed, and the engine has undone it."""


class NoObserver:
    """Ignores all epochs."""

    def given(self) -> None:
        """Do nothing."""

    def computed(self) -> None:
        """Do nothing."""

    def undone(self) -> None:
        """Do nothing."""


class Engine(Protocol):
    """Maintains all relations of one program."""

    @property
    def name(self) -> str:
        """The engine's name, as `--engine` takes it."""

    @property
    def last_epoch(self) -> EpochReport:
        """What the last committed epoch did."""

    @property
    def memory(self) -> Mapping[str, int]:
        """The bytes that each relation takes, as far as the engine knows."""

    def given_count(self, relation: str) -> int:
        """Return how many rows of a relation are given: inserted by transactions."""

    def is_given(self, relation: str, row: Row) -> bool:
        """Return whether a transaction has inserted a row."""

    def reader(self, relation: str) -> Reader:
        """Return a reader for the committed rows of a relation."""

    def rows(self, relation: str) -> Set[Row]:
        """Return the committed rows of a relation, given and derived."""

    def query(self, text: str) -> Answer:
        """Return the answers to a query, a rule body; raise ProgramError for mistakes in it."""

    def apply(
        self,
        inserted: Mapping[str, Requested],
        deleted: Mapping[str, Requested],
        interrupts: Interrupts | None = None,
        program: Program | None = None,
    ) -> Effects:
        """Commit one epoch. No row is both inserted and deleted, unless both are tables.

        A row that is in both tables stays as it was. An exception leaves everything as it was.

        With `program` the epoch changes the program.

        `interrupts` are raised where the epoch can still be undone. Later ones are left to the
        caller, because the epoch is committed.
        """
