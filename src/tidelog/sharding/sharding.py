"""Where the rows of a sharded program are: the result of the sharding analysis, as data.

The shards form a *grid*: K shards in a line, or a rectangle or a box for rules whose atoms form a
cycle. A *partitioning* of a relation names, for each side of the grid, the column whose hash
is the coordinate of a row, or None if all shards along that side have the row:

    (0,)            sharded by the first column
    (None,)         broadcast: whole in every shard
    (0, 1)          on a rectangle, in the one shard at the hashes of both columns
    (None, 0)       on a rectangle, in each shard of one line
    SCATTERED       in the shards where rules derive it, possibly in several

A relation can have several *variants*, one for each partitioning that rules need. The invariant:

    the union of a variant over all shards is the relation, and, unless it is scattered,
    a shard has exactly the rows that its coordinates select
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Final

Partitioning = tuple[int | None, ...]
SCATTERED: Final[Partitioning] = (-1,)
"""Each row is in the shards that derive it."""


@dataclass(frozen=True)
class Variant:
    """A relation with one partitioning."""

    relation: str
    partitioning: Partitioning

    @property
    def is_scattered(self) -> bool:
        """Whether a row may be in any shard, and in several."""
        return self.partitioning == SCATTERED

    @property
    def is_whole(self) -> bool:
        """Whether every shard has all rows."""
        return all(column is None for column in self.partitioning)

    @property
    def name(self) -> str:
        """A name for the variant that no program can declare."""
        if self.is_scattered:
            return f"{self.relation}@scattered"
        columns = ["all" if c is None else f"{c}" for c in self.partitioning]
        return f"{self.relation}@by_{'_'.join(columns)}"


@dataclass(frozen=True)
class Grid:
    """The number of shards along each side."""

    sides: tuple[int, ...]

    @property
    def shards(self) -> int:
        """The number of shards."""
        return prod(self.sides)

    def coordinates(self, shard: int) -> tuple[int, ...]:
        """Return the coordinates of a shard.

        >>> Grid((2, 3)).coordinates(4)
        (1, 1)
        """
        found = []
        for side in reversed(self.sides):
            shard, at = divmod(shard, side)
            found.append(at)
        return tuple(reversed(found))

    def lines(self) -> Iterator[tuple[int, ...]]:
        """Yield the coordinates of all shards, by shard number."""
        return product(*map(range, self.sides))

    def share(self, partitioning: Partitioning) -> float:
        """Return the fraction of a relation that one shard has."""
        if partitioning == SCATTERED:
            return 1 / self.shards
        return prod(
            1 if column is None else 1 / side
            for column, side in zip(partitioning, self.sides, strict=True)
        )

    def counts(self, partitioning: Partitioning, shard: int) -> bool:
        """Return whether a view takes its rows from this shard.

        Of several shards with the same rows, it takes them from the first. Of scattered rows it
        takes every copy.
        """
        if partitioning == SCATTERED:
            return True
        return all(
            at == 0
            for at, column in zip(self.coordinates(shard), partitioning, strict=True)
            if column is None
        )


@dataclass(frozen=True)
class Sharding:
    """How a program is computed in shards.

    `rules` maps each derived variant and the id of each of its rules to the variants that the atoms
    of the rule read, in the order of `atoms_of`.
    """

    grid: Grid
    shown: Mapping[str, Variant]
    """The variant that the view of each relation shows."""
    variants: tuple[Variant, ...]
    rules: Mapping[tuple[Variant, int], tuple[Variant, ...]]
    doubts: Mapping[str, str] = field(default_factory=dict)
    """Why derived relations are whole in every shard."""

    def variants_of(self, relation: str) -> list[Variant]:
        """Return the variants of a relation; the first is the one that its view shows."""
        first = self.shown[relation]
        return [first, *(v for v in self.variants if v.relation == relation and v != first)]

    def name_of(self, variant: Variant) -> str:
        """Return the name of a variant in the program of a shard."""
        return variant.relation if self.shown[variant.relation] == variant else variant.name


@dataclass(frozen=True)
class NotSharded:
    """Why a program cannot be sharded, or would not gain from it."""

    why: str
