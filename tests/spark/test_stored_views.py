"""Views of a stored state, read without Spark: each part once, each change once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.seeds import seeded
from tidelog.errors import UsageError
from tidelog.io.tabular import CheckedRows
from tidelog.sharding.layout import ShardLayout
from tidelog.spark.epoch_changes import EpochChanges
from tidelog.spark.placement_sharded import ShardedPlacement
from tidelog.spark.placements import layout_of
from tidelog.spark.stored_views import ViewPart, open_state

pytestmark = pytest.mark.sampled(1)

PROGRAM = """
.decl edge(x: number, y: number)
.decl reach(x: number, y: number)
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
.decl goal(y: number)
goal(y) :- reach(_, y).
"""
EPOCHS = 8


def read(parts: list[ViewPart]) -> list[tuple[Any, ...]]:
    batches = [batch for part in parts for batch in part.read()]
    return sorted(tuple(row.values()) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize("view", ["reach", "goal"])
def test_shards(tmp_path: Path, view: str) -> None:
    random = seeded("stored views", view)
    program = tidelog.Program.parse(PROGRAM)
    made = layout_of(program, 3)
    assert isinstance(made, ShardLayout)
    placement = ShardedPlacement(program, tmp_path / "sharded", made.grid.sides, 5, [view])
    edges: set[tuple[int, int]] = set()
    seen: list[list[tuple[Any, ...]]] = []
    for epoch in range(EPOCHS):
        new = {(random.randrange(9), random.randrange(9)) for _ in range(3)} - edges
        old = set(random.sample(sorted(edges), min(len(edges), 2)))
        edges = (edges | new) - old
        placement.apply(EpochChanges({"edge": CheckedRows(new)}, {"edge": CheckedRows(old)}))
        state = open_state(str(tmp_path))
        assert state.last_epoch() == epoch
        database = tidelog.Database(PROGRAM, facts={"edge": edges}, engine="reference")
        seen.append(sorted(database.view(view)))
        parts = state.parts(view, epoch)
        assert len(parts) == (3 if view == "reach" else 1)
        assert read(parts) == seen[-1]
    placement.close()
    for since in range(EPOCHS - 4, EPOCHS):
        for until in range(since, EPOCHS):
            held = set(seen[since])
            changes = read(state.change_parts(view, since, until)) if until > since else []
            for *row, op, epoch in sorted(changes, key=lambda c: (c[-1], c[-2] == "+")):
                assert since < epoch <= until
                (held.add if op == "+" else held.remove)(tuple(row))
            assert sorted(held) == seen[until]
    with pytest.raises(UsageError, match="begin again with a new checkpoint"):
        state.change_parts(view, -1, EPOCHS - 1)
    other = "goal" if view == "reach" else "reach"
    with pytest.raises(UsageError, match="no sink writes it"):
        state.change_parts(other, EPOCHS - 2, EPOCHS - 1)
    with pytest.raises(UsageError, match="there is no epoch 99 yet"):
        state.parts(view, 99)
