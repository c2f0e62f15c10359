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


class Engine(Protocol):
    """Keeps the contents of all relations of one program."""

    @property
    def name(self) -> str:
        """The engine's name, as `--engine` takes it."""

    def given(self, relation: str) -> Set[Row]:
        """Return the given rows of a relation: those that transactions inserted."""

    def rows(self, relation: str) -> Set[Row]:
        """Return the committed rows of a relation, given and derived."""

    def apply(self, changes: Mapping[str, NetChange]) -> Mapping[str, NetChange]:
        """Commit one epoch: change the given rows, return the net change of every relation.

        An exception leaves everything as it was.
        """
