"""What a database needs from the engine under it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidelog.engine.explain import Details
from tidelog.engine.reads import Reader, SetReader
from tidelog.engine.report import EpochReport
from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import Records
from tidelog.logic.program import Relation
from tidelog.maintain.interrupts import Interrupts
from tidelog.values.types import Row

Requested = set[Row] | CheckedTable
"""Rows that a transaction inserts, or deletes, into one relation."""


class NetChange:
    """The rows that an epoch adds to and removes from one relation; the two are disjoint.

    An engine may keep them in a form of its own (engine/changed_rows.py).
    """

    __slots__ = ("_deleted", "_inserted")

    def __init__(
        self, inserted: frozenset[Row] = frozenset(), deleted: frozenset[Row] = frozenset()
    ) -> None:
        self._inserted, self._deleted = inserted, deleted

    @property
    def inserted(self) -> frozenset[Row]:
        """The rows that came."""
        return self._inserted

    @property
    def deleted(self) -> frozenset[Row]:
        """The rows that went."""
        return self._deleted

    def readers(self, relation: Relation, records: Records) -> tuple[Reader, Reader]:
        """Return the rows that came, and those that went, to be asked."""
        return (
            SetReader(self.inserted, relation, records), SetReader(self.deleted, relation, records),
        )  # fmt: skip

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted)


@dataclass(frozen=True)
class Ignored:
    """Rows of a transaction that changed nothing: inserted but present, deleted but not given.

    Rows of a table are not listed here: nobody has asked for them one by one.
    """

    inserted: frozenset[Row] = frozenset()
    deleted: frozenset[Row] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted)


class Effects(NamedTuple):
    """What an epoch did: the net change of each relation that changed, and what it ignored."""

    changes: Mapping[str, NetChange]
    ignored: Mapping[str, Ignored]


class Engine(Protocol):
    """Keeps the contents of all relations of one program."""

    @property
    def name(self) -> str:
        """The engine's name, as `--engine` takes it."""

    @property
    def last_epoch(self) -> EpochReport:
        """What the last committed epoch did."""

    @property
    def memory(self) -> Mapping[str, int]:
        """The bytes that each relation takes, as far as the engine knows."""

    def details(self) -> Details | None:
        """Return what there is to explain beyond the program."""

    def given_count(self, relation: str) -> int:
        """Return how many rows of a relation are given: inserted by transactions."""

    def reader(self, relation: str) -> Reader:
        """Return the committed rows of a relation, to be asked."""

    def rows(self, relation: str) -> Set[Row]:
        """Return the committed rows of a relation, given and derived."""

    def apply(
        self,
        inserted: Mapping[str, Requested],
        deleted: Mapping[str, Requested],
        interrupts: Interrupts | None = None,
    ) -> Effects:
        """Commit one epoch. No row is both inserted and deleted, unless both are tables.

        A row that is in both tables stays as it was.

        An exception leaves everything as it was. `interrupts` are raised where the epoch can still
        be undone; those that come later are for the caller: what is kept counts.
        """
