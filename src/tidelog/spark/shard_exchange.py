"""What a cell receives in an epoch, and what it sends to later stages.

Rows of the shuffle come from sources (shard_routing.py) and from earlier stages. Both look the
same: a shard, a number, and rows as an Arrow stream. The numbers of sources come first, then those
of the exchanges.

    stage 0 of shard i ──► stage 1 of every shard   net changes of the relations that are exchanged
                       ──► stage 1 of shard i       rows of sources whose relations are given there,
                                                    and what the earlier stages answer

So a task needs nothing but its rows: which files hold the state that an earlier stage has left, and
whether it has failed, is in the answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tidelog.spark.shard_routing import SIGN, Sent, SourceCheck, routed_table
from tidelog.spark.shard_task import arrow_rows, as_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.sharding.cells import Cells
    from tidelog.sharding.shard_state import Shard, ShardDone
    from tidelog.sharding.stages import Exchange

_ANSWER = -1
"""The number of a row with the answer of the earlier stages."""


@dataclass
class Arrived:
    """What the shuffle has brought to a cell."""

    tables: dict[int, list[pa.Table]] = field(default_factory=dict)
    """Accepted rows by number of the source, and net changes by number of the exchange."""
    received: dict[str, int] = field(default_factory=dict)
    bad: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    """The newest time of sources that forget old rows, by number of the source."""
    answer: dict[str, Any] = field(default_factory=dict)
    """The answer of the earlier stages."""
    later: list[Sent] = field(default_factory=list)
    """What later stages of the shard are to receive."""

    @property
    def is_done(self) -> bool:
        """Whether an earlier stage has failed, so that there is nothing to do."""
        return "error" in self.answer or "failing" in self.answer


def arrived(
    rows: Iterable[Sent], cells: Cells, checks: Sequence[SourceCheck], stage: int
) -> Arrived:
    """Return what rows of the shuffle say to a stage."""
    import pyarrow as pa

    found = Arrived()
    stages = [cells.layout.home[check.relation] for check in checks]
    stages += [exchange.target for exchange in cells.layout.exchanges]
    for row in rows:
        _, number, received, bad, newest, data = row
        if number == _ANSWER:
            assert bad is not None
            found.answer = json.loads(bad)
            continue
        if stages[number] != stage:
            found.later.append(row)
            continue
        if number < len(checks):
            name = checks[number].name
            found.received[name] = found.received.get(name, 0) + received
            if bad:
                found.bad.setdefault(name, []).extend(json.loads(bad))
            if newest is not None:
                found.newest[number] = max(newest, found.newest.get(number, newest))
        if data is not None and len(data):
            found.tables.setdefault(number, []).append(pa.ipc.open_stream(data).read_all())
    return found


def rows_of_shuffle(batches: Iterable[pa.RecordBatch]) -> Iterator[Sent]:
    """Yield the rows of batches."""
    for batch in batches:
        numbers, received, bad, newest = (batch.column(i).to_pylist() for i in (1, 2, 3, 4))
        for i, number in enumerate(numbers):
            yield -1, number, received[i], bad[i], newest[i], batch.column(5)[i].as_buffer()


def sent_rows(
    cells: Cells,
    checks: Sequence[SourceCheck],
    stage: int,
    number: int,
    came: Arrived,
    answer: Mapping[str, Any],
    done: tuple[Shard, ShardDone] | None,
) -> Iterator[Sent]:
    """Yield what the cell of a stage and a shard sends; `done` is what it has done in the epoch."""
    yield number, _ANSWER, 0, json.dumps(answer), None, b""
    for _, source, received, bad, newest, data in came.later:
        yield number, source, received, bad, newest, bytes(data) if data is not None else b""
    if done is None:
        return
    shard, did = done
    for at, exchange in cells.sent_from(stage):
        table = _changes(shard, did, exchange, number)
        if not cells.is_shown_in(exchange.relation, number) or not table.num_rows:
            continue
        router = cells.routers[exchange.target]
        for target, part in routed_table(router, exchange.received, table):
            yield target, len(checks) + at, 0, None, None, as_bytes(part)


def _changes(shard: Shard, done: ShardDone, exchange: Exchange, number: int) -> pa.Table:
    """Return the net changes of a relation in an epoch: all rows if it was the first one."""
    import pyarrow as pa

    from tidelog.engine.tree_reads import stored_rows

    name = exchange.relation
    if done.is_new:
        catalog = shard.engine.catalog
        stored = stored_rows(catalog, shard.engine.program.relations[name])
        sides = [(stored.ordinals(stored.rows()), True)]
    elif name in done.changes:
        sides = [(done.changes[name].inserted, True), (done.changes[name].deleted, False)]
    else:
        return pa.table({})
    tables = []
    for ordinals, sign in sides:
        rows, count = arrow_rows(shard, name, ordinals), ordinals.shape[1]
        if not shard.engine.program.relations[name].columns:
            rows = rows.select([])
        if exchange.is_counted:
            rows = rows.append_column("sent by", pa.array([number] * count, pa.int64()))
        tables.append(rows.append_column(SIGN, pa.array([sign] * count, pa.bool_())))
    return pa.concat_tables(tables)
