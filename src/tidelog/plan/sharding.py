"""Where the rows of a sharded program are: what a sharding analysis decides, as data.

The shards form a *grid*: K shards in a row, or a rectangle or a box of them for rules whose atoms
form a cycle. A *placement* of a relation names, for each side of the grid, the column whose hash is
the coordinate of a row there, or none if the rows are in all shards along that side:

    (0,)            sharded by its first column
    (None,)         broadcast: whole in every shard
    (0, 1)          on a rectangle, in the one shard where hashes of both columns meet
    (None, 0)       in each shard of one line of it
    SCATTERED       what its rules happen to derive, shard by shard; a row may be in several

A relation can have several *versions*, one for each placement that rules ask for. Everything rests
on this invariant:

    the union of a version over all shards is the relation, and, unless it is scattered,
    a shard has exactly the rows that its coordinates say
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Final

Placement = tuple[int | None, ...]
SCATTERED: Final[Placement] = (-1,)
"""Rows are where a rule has found them."""


@dataclass(frozen=True)
class Version:
    """A relation in one placement."""

    relation: str
    placement: Placement

    @property
    def is_scattered(self) -> bool:
        """Whether a row may be in any shard, and in several."""
        return self.placement == SCATTERED

    @property
    def is_whole(self) -> bool:
        """Whether every shard has all rows."""
        return all(column is None for column in self.placement)

    @property
    def name(self) -> str:
        """A name for the version, which no program can declare."""
        if self.is_scattered:
            return f"{self.relation}@scattered"
        columns = ["all" if c is None else f"{c}" for c in self.placement]
        return f"{self.relation}@by_{'_'.join(columns)}"


@dataclass(frozen=True)
class Grid:
    """How many shards there are along each side."""

    sides: tuple[int, ...]

    @property
    def shards(self) -> int:
        """How many shards there are."""
        return prod(self.sides)

    def coordinates(self, shard: int) -> tuple[int, ...]:
        """Return where a shard is.

        >>> Grid((2, 3)).coordinates(4)
        (1, 1)
        """
        found = []
        for side in reversed(self.sides):
            shard, at = divmod(shard, side)
            found.append(at)
        return tuple(reversed(found))

    def lines(self) -> Iterator[tuple[int, ...]]:
        """Yield the coordinates of all shards, in the order of their numbers."""
        return product(*map(range, self.sides))

    def share(self, placement: Placement) -> float:
        """Return the part of a relation that one shard has."""
        if placement == SCATTERED:
            return 1 / self.shards
        return prod(
            1 if column is None else 1 / side
            for column, side in zip(placement, self.sides, strict=True)
        )

    def counts(self, placement: Placement, shard: int) -> bool:
        """Return whether a shard's copy of its rows is the one that counts.

        Of shards that have the same rows it is the first. Of scattered rows every copy is one.
        """
        if placement == SCATTERED:
            return True
        return all(
            at == 0
            for at, column in zip(self.coordinates(shard), placement, strict=True)
            if column is None
        )


@dataclass(frozen=True)
class Sharding:
    """How a program is computed in shards.

    `rules` has, for each version that is derived and each of its rules, the versions of the atoms
    that the rule reads, in the order in which they stand in it (`atoms_of`).
    """

    grid: Grid
    shown: Mapping[str, Version]
    """For each relation the version that its view shows."""
    versions: tuple[Version, ...]
    rules: Mapping[tuple[Version, int], tuple[Version, ...]]
    doubts: tuple[str, ...] = ()
    """What speaks against sharding, though it can be done."""

    def versions_of(self, relation: str) -> list[Version]:
        """Return the versions of a relation, the one that is shown first."""
        first = self.shown[relation]
        return [first, *(v for v in self.versions if v.relation == relation and v != first)]

    def name_of(self, version: Version) -> str:
        """Return what a version is called in a shard's program."""
        return version.relation if self.shown[version.relation] == version else version.name


@dataclass(frozen=True)
class NotSharded:
    """Why a program cannot be computed in shards, or why nothing would be gained."""

    why: str
