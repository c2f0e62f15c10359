"""Upserts in both placements, without Spark: random histories, cut anywhere, against a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidelog
from tests.samples import sample
from tests.seeds import seeded
from tests.spark.upserted import PROGRAM, Event, Model, cut, some_events
from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import CheckedRows
from tidelog.logic.program import Program
from tidelog.reference import evaluate
from tidelog.sharding import shard_state
from tidelog.sharding.key_relations import Upsert, is_hidden, with_upserts, without_upserts
from tidelog.sharding.layout import layout_on
from tidelog.sharding.sharding import Grid
from tidelog.spark import shard_task
from tidelog.spark.epoch_changes import ArrivedKeys, EpochChanges
from tidelog.spark.placement_driver import DriverPlacement, with_offsets
from tidelog.spark.placement_sharded import ShardedPlacement
from tidelog.spark.placements import Placement

OWN = Program.parse(PROGRAM)
LIMITS = {(0, 2), (1, 1), (2, 4), (3, 3)}


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    shard_task.forget()
    yield
    shard_task.forget()


def opened(way: str, folder: Path, upsert: Upsert) -> Placement:
    program = with_upserts(OWN, [upsert])
    if way == "driver":
        return DriverPlacement(with_offsets(program), folder, "refuse", 100, upserts=[upsert])
    views = ["item", "over", "busy"]
    return ShardedPlacement(program, folder, (3,), 100, views, upserts=[upsert])


def arrivals(events: list[Event], *, with_sequence: bool) -> ArrivedKeys:
    rows = [e.row() or (e.key[0], None, e.key[1], e.at, None) for e in events]
    types = [pa.int64(), pa.int64(), pa.string(), pa.int64(), pa.float64()]
    columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), types, strict=True)]
    table = pa.Table.from_arrays(columns, [c.name for c in OWN.relations["item"].columns])
    inserted = np.array([event.values is not None for event in events])
    at = np.array([event.at for event in events]) if with_sequence else None
    return ArrivedKeys(CheckedTable(table), inserted, at)


@pytest.mark.parametrize("with_sequence", [True, False])
@pytest.mark.parametrize("way", ["driver", "sharded"])
def test_random_histories(
    way: str, with_sequence: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = seeded(f"upserts {way} {with_sequence}")
    monkeypatch.setattr(shard_state, "_LEAST_LOG", 600)  # snapshots all the time
    upsert = Upsert("item", (0, 2), with_sequence)
    for number in range(sample(6, 100)):
        folder = tmp_path / str(number)
        model = Model(with_sequence)
        placement = opened(way, folder, upsert)
        for part in cut(rng, some_events(rng, rng.randrange(1, 40))):
            before = model.rows()
            for event in part:
                model.take(event)
            rows = model.rows()
            new = {"limit": CheckedRows(LIMITS)} if placement.epoch < 0 else {}
            done = placement.apply(
                EpochChanges(
                    dict(new), upserts={"item": arrivals(part, with_sequence=with_sequence)}
                )
            )
            assert (done.inserted, done.deleted) == (
                len(rows - before) + len(LIMITS) * bool(new), len(before - rows),
            )  # fmt: skip
            wanted = evaluate(OWN, {"item": rows, "limit": LIMITS})
            for view in ("item", "over", "busy"):
                assert set(placement.rows(view)) == wanted[view]
            if rng.random() < 0.4:
                placement.close()
                shard_task.forget()
                placement = opened(way, folder, upsert)
        if with_sequence:
            held = {(*event.key, event.at) for event in model.held.values()}
            assert set(placement.given(upsert.sequence)) == held
        placement.close()


NESTED = Program.parse(
    ".type Pair = [a: number, b: symbol]\n"
    ".decl item(p: Pair, k: number, s: set(number))\n"
    ".decl big(k: number)\nbig(k) :- item(_, k, _).\n"
)


@pytest.mark.parametrize("way", ["driver", "sharded"])
def test_other_columns_may_be_nested(way: str, tmp_path: Path) -> None:
    upsert = Upsert("item", (1,), True)
    program = with_upserts(NESTED, [upsert])
    placement: Placement
    if way == "driver":
        placement = DriverPlacement(with_offsets(program), tmp_path, "refuse", 9, upserts=[upsert])
    else:
        placement = ShardedPlacement(program, tmp_path, (2,), 9, upserts=[upsert])

    def apply(*events: tuple[int, int, tuple[object, object] | None]) -> set[tuple[object, ...]]:
        rows = CheckedRows((v[0], k, v[1]) if v else (None, k, frozenset()) for k, _, v in events)
        inserted = np.array([v is not None for _, _, v in events])
        at = np.array([at for _, at, _ in events])
        placement.apply(EpochChanges(upserts={"item": ArrivedKeys(rows, inserted, at)}))
        return set(placement.rows("item"))

    one, two = frozenset([1]), frozenset([1, 2])
    assert apply((1, 1, ((5, "x"), one)), (2, 1, (None, two))) == {
        ((5, "x"), 1, one), (None, 2, two),
    }  # fmt: skip
    assert apply((1, 2, ((6, "y"), two)), (2, 0, None)) == {((6, "y"), 1, two), (None, 2, two)}
    assert set(placement.rows("big")) == {(1,), (2,)}
    assert apply((2, 1, None)) == {((6, "y"), 1, two)}
    placement.close()


def test_derived_rows_and_facts_are_not_replaced(tmp_path: Path) -> None:
    own = Program.parse(
        ".decl p(k: number, v: number)\np(1, 1).\n.decl q(k: number)\np(k, 2) :- q(k).\n"
    )
    upsert = Upsert("p", (0,))
    program = with_offsets(with_upserts(own, [upsert]))
    placement = DriverPlacement(program, tmp_path, "refuse", 9, upserts=[upsert])

    def apply(k: int, v: int) -> set[tuple[object, ...]]:
        came = ArrivedKeys(CheckedRows([(k, v)]), np.array([v != 0]))
        placement.apply(EpochChanges(upserts={"p": came}))
        return set(placement.rows("p"))

    placement.apply(EpochChanges({"q": CheckedRows([(1,)])}))
    assert set(placement.rows("p")) == {(1, 1), (1, 2)}
    assert apply(1, 5) == {(1, 1), (1, 2), (1, 5)}
    assert apply(1, 2) == {(1, 1), (1, 2)}
    assert set(placement.given("p")) == {(1, 2)}
    assert apply(1, 6) == {(1, 1), (1, 2), (1, 6)}
    assert apply(1, 0) == {(1, 1), (1, 2)}
    placement.close()


def test_relations_for_upserts_are_apart() -> None:
    upsert = Upsert("item", (2, 0), True)
    program = with_upserts(OWN, [upsert])
    added = [name for name in program.relations if name not in OWN.relations]
    assert added == list(upsert.names())
    assert all(map(is_hidden, added))
    again = without_upserts(program)
    assert (again.relations, again.rules) == (OWN.relations, OWN.rules)
    alone, both = layout_on(OWN, Grid((4,))), layout_on(program, Grid((4,)))
    assert {n: v for n, v in both.shown.items() if not is_hidden(n)} == alone.shown
    assert alone.shown["item"].partitioning == (1,)  # so that rows change their shard
    with pytest.raises(tidelog.UsageError, match="`tidelog_keys_item` is a name reserved"):
        with_upserts(program, [upsert])
