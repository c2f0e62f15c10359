"""The cells of a layout: a stage of the program in a shard, with an engine of its own.

    cell = stage * shards + shard

A program that is computed in one stage has a cell for each shard.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.logic.program import Program
from tidelog.sharding.layout import ShardLayout
from tidelog.sharding.router import Router
from tidelog.sharding.stages import Exchange


class Cells:
    """The stages of a program in shards: which rows each cell gets, and the program of a cell."""

    def __init__(self, program: Program, layout: ShardLayout) -> None:
        self.program, self.layout = program, layout
        self.shards = layout.grid.shards
        self.routers = tuple(
            Router(stage, sharding)
            for stage, sharding in zip(layout.programs, layout.shardings, strict=True)
        )
        """A router for each stage."""

    @property
    def stages(self) -> int:
        """The number of stages."""
        return len(self.routers)

    @property
    def count(self) -> int:
        """The number of cells."""
        return self.stages * self.shards

    def cell(self, stage: int, shard: int) -> int:
        """Return the cell of a stage in a shard."""
        return stage * self.shards + shard

    def cell_of(self, relation: str, shard: int) -> int:
        """Return the cell that has the rows of a relation in a shard."""
        return self.cell(self.layout.home[relation], shard)

    def router_of(self, relation: str) -> Router:
        """Return the router of the rows that sources give a relation."""
        return self.routers[self.layout.home[relation]]

    def program_of(self, cell: int) -> Program:
        """Return the program of a cell."""
        stage, shard = divmod(cell, self.shards)
        return self.routers[stage].program_of(shard)

    def sent_from(self, stage: int) -> Iterator[tuple[int, Exchange]]:
        """Yield the exchanges that a stage sends, with their numbers."""
        for number, exchange in enumerate(self.layout.exchanges):
            if exchange.source == stage:
                yield number, exchange

    def is_shown_in(self, relation: str, shard: int) -> bool:
        """Return whether the view of a relation takes rows from a shard."""
        return self.layout.grid.counts(self.layout.shown[relation].partitioning, shard)

    def is_scattered(self, relation: str) -> bool:
        """Return whether a row of a view may be in several shards."""
        return self.layout.shown[relation].is_scattered
