"""Old rows of an append stream, in a shard: late ones are left out, expired ones are deleted.

The newest time of a source is that of all its rows, so every routing task sends the newest of its
own rows to all shards (shard_routing.py). Then each shard knows the bound, and finds its own rows
before it in the order of the column: O(log n), and what expires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.retention import rows_before
from tidelog.sharding.router import Router
from tidelog.spark.shard_routing import SourceCheck

if TYPE_CHECKING:
    from tidelog.store.relation import StoredRelation

Array = NDArray[np.int64]


class ShardRetention:
    """What sources retain, in one cell and one epoch."""

    def __init__(
        self,
        checks: Mapping[int, SourceCheck],
        before: Mapping[str, int],
        arrived: Mapping[int, int],
    ) -> None:
        """`before` has the newest times by source, `arrived` those of the epoch by its number."""
        self._checks = [check for check in checks.values() if check.retained is not None]
        self._before = before
        self.newest: dict[str, int] = {}
        """The newest time of each source, after the epoch."""
        self.late: dict[str, int] = {}
        """The rows that are too late, by source, each counted in one shard."""
        for number, check in checks.items():
            found = [t for t in (before.get(check.name), arrived.get(number)) if t is not None]
            if check.retained is not None and found:
                self.newest[check.name] = max(found)

    def apply(
        self,
        encoded: Mapping[str, tuple[Array, Array]],
        router: Router,
        shard: int,
        given: Callable[[str], StoredRelation] | None,
    ) -> dict[str, tuple[Array, Array]]:
        """Return the changes without late rows, and with the deletions of what expires.

        `given` returns the stored rows of a variant. Without it, nothing is stored yet.
        """
        changes = dict(encoded)
        sharding = router.sharding
        for check in self._checks:
            assert check.retained is not None
            if check.name not in self.newest:
                continue
            newest, column = self.newest[check.name], check.retained.column
            bound = newest - check.retained.length
            for variant in sharding.variants_of(check.relation):
                name = sharding.name_of(variant)
                if name in changes:
                    inserted, deleted = changes[name]
                    kept = inserted[column] >= bound
                    changes[name] = inserted[:, kept], deleted
                    is_shown = sharding.shown[check.relation] == variant
                    if is_shown and sharding.grid.counts(variant.partitioning, shard):
                        late = len(kept) - int(kept.sum())
                        self.late[check.name] = self.late.get(check.name, 0) + late
                if given is not None and newest != self._before.get(check.name):
                    stored = given(name)
                    expired = rows_before(stored, column, bound)
                    if expired.shape[1]:
                        inserted, deleted = changes.get(name, (expired[:, :0], expired[:, :0]))
                        changes[name] = inserted, np.concatenate([deleted, expired], axis=1)
        return changes
