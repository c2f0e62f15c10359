"""What a database needs from the engine under it."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Protocol

from tidelog.values.types import Row


@dataclass(frozen=True)
class NetChange:
    """The rows that an epoch adds to and removes from one relation; the two are disjoint."""

    inserted: frozenset[Row] = frozenset()
    deleted: frozenset[Row] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted)


@dataclass(frozen=True)
class Ignored:
    """Rows of a transaction that changed nothing: inserted but present, deleted but not given."""

    inserted: frozenset[Row] = frozenset()
    deleted: frozenset[Row] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.inserted or self.deleted)


@dataclass(frozen=True)
class Effects:
    """What an epoch did: the net change of each relation that changed, and what it ignored."""

    changes: Mapping[str, NetChange]
    ignored: Mapping[str, Ignored]


class Engine(Protocol):
    """Keeps the contents of all relations of one program."""

    @property
    def name(self) -> str:
        """The engine's name, as `--engine` takes it."""

    def given_count(self, relation: str) -> int:
        """Return how many rows of a relation are given: inserted by transactions."""

    def rows(self, relation: str) -> Set[Row]:
        """Return the committed rows of a relation, given and derived."""

    def apply(self, inserted: Mapping[str, Set[Row]], deleted: Mapping[str, Set[Row]]) -> Effects:
        """Commit one epoch. No row is both inserted and deleted.

        An exception leaves everything as it was.
        """
