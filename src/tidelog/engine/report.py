"""What an epoch did, as data: `db.last_epoch`.

Named tuples: each epoch makes them, and they take a sixth of the time of data classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class LayerReport(NamedTuple):
    """What one layer did: relations that depend on each other, maintained by one strategy.

    Relations with `@` in their names are the kernel's own, made for aggregates and negations.
    """

    relations: tuple[str, ...]
    strategy: str
    """The name of the strategy, such as `counting` or `elastic` (docs/python.md lists them)."""
    choice: str
    """`update`, `bootstrap` or `nothing to do`."""
    why: str
    """The reason for the choice; empty for an update."""
    seconds: float
    inserted: int
    deleted: int
    touched: int = 0
    """How many rule instantiations its joins enumerated."""
    levels: int = 0
    """How many iterations a recursion took."""
    propagated: int = 0
    """Of a virtual view: how many rows may have changed, as far as propagation could tell."""
    filtered: int = 0
    """How many of them had to be proved, or refuted, in the other version."""
    disqualified: int = 0
    """How many of them had not changed."""
    work: str = ""
    """What else the strategy counted, in words: intervals and iterator operations of `leapfrog`."""


class EpochReport(NamedTuple):
    """What one epoch did. Epoch 0 is the first evaluation."""

    epoch: int
    seconds: float
    given_inserted: int
    """Given rows that were inserted; those that existed already do not count."""
    given_deleted: int
    layers: tuple[LayerReport, ...]
    """In the order in which they ran."""
    late: Mapping[str, int] = MappingProxyType({})
    """How many rows were too old when they came (`.retain`), by relation; others have none."""

    @property
    def touched(self) -> int:
        """How many rule instantiations all joins enumerated."""
        return sum(layer.touched for layer in self.layers)

    def layer(self, relation: str) -> LayerReport | None:
        """Return what the layer of a relation did; None for one that no rule derives."""
        for layer in self.layers:
            if relation in layer.relations:
                return layer
        return None
