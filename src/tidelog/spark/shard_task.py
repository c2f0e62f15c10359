"""What runs in Spark's workers for a sharded pipeline. Nothing here opens a session.

A task takes one shard, brings it up from its files, or from what this process still has of it, does
the epoch, writes files under names of its own, and tells their names. Whoever started the job says
which of them count. So a task may run twice, or fail anywhere.

Which task takes which shard does not matter, and a process that has a shard in memory is quicker
with it. Spark hands tasks to processes as it likes; so tasks *claim* shards, first those that their
process has. A task that runs again finds its claim and takes the same one.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.errors import TidelogError
from tidelog.spark.sparing import Spared
from tidelog.values.types import Row

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.engine.kernel import KernelEngine
    from tidelog.engine.shard_state import Shard, ShardDone, ShardRef
    from tidelog.engine.shards import Router
    from tidelog.logic.program import Program
    from tidelog.spark.shard_reading import FilePart, Read

SCHEMA = "shard int, head string, data binary"
LETTER = "tidelog.work"
"""The property of a job that says what is to be done, if its function does not."""
_CHUNK = 1 << 16  # rows in one answer to a question about a view
_PATIENCE = 10.0  # seconds
_MOST_KEPT = 16  # shards that a process has in memory


_kept: dict[tuple[str, int], Shard] = {}


@dataclass(frozen=True)
class Rows:
    """Rows for each shard, by the names of versions: those that came, those that went."""

    inserted: Sequence[Mapping[str, set[Row]]]
    deleted: Sequence[Mapping[str, set[Row]]]


@dataclass(frozen=True)
class Work:
    """An epoch, or a question, for all shards."""

    folder: str
    identity: str
    program: str
    program_name: str
    sides: tuple[int, ...]
    refs: tuple[ShardRef, ...] | None
    """The state before; None if there is none yet."""
    token: str
    epoch: int = 0
    watched: tuple[str, ...] = ()
    rows: Rows | None = None
    files: tuple[FilePart, ...] = ()
    view: str = ""
    """The relation that is asked for; empty in an epoch."""
    given: bool = False
    """Whether only its given rows are."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Do the work for the shards that fall to a partition."""
        import pyarrow as pa

        Spared.at_task()
        for batch in batches:
            for partition in batch.column(0).to_pylist():
                shard = _claimed(self, int(partition))
                for head, data in _answers(self, shard):
                    yield pa.RecordBatch.from_pydict(
                        {
                            "shard": pa.array([shard], pa.int32()),
                            "head": pa.array([json.dumps(head)], pa.string()),
                            "data": pa.array([data], pa.binary()),
                        }
                    )


def do_letter(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do the work that the job's letter tells, for the shards that fall to a partition."""
    from pyspark import TaskContext

    from tidelog.spark.shard_letter import read

    context = TaskContext.get()
    assert context is not None
    yield from read(context.getLocalProperty(LETTER))(batches)


def _answers(work: Work, shard: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    try:
        if work.view:
            for part in read_view(work, shard):
                yield {}, part
        else:
            yield do_epoch(work, shard), b""
    except TidelogError as error:
        # Told, and not raised: it would be the same in another attempt.
        _drop((work.identity, shard))
        yield {"error": type(error).__name__, "message": str(error)}, b""
    except BaseException:
        _drop((work.identity, shard))
        raise


# --- claims -----------------------------------------------------------------------------------


def _claimed(work: Work, partition: int) -> int:
    """Return the shard that a partition takes in this job, the same one in each attempt.

    A file named by a shard has the partition that claims it; one named by a partition has the shard
    that it got. If attempts of one partition meet, the claim of the second one does not count.
    """
    folder = Path(work.folder) / "claims" / work.token
    if not folder.is_dir():
        return partition  # the job is over, and this task comes too late to matter
    got = folder / f"partition-{partition}"
    end = time.monotonic() + _PATIENCE
    while not got.exists():
        shard = _claim(work, folder, partition)
        if shard is not None:
            _linked(folder, got, str(shard))
        elif time.monotonic() > end:
            raise RuntimeError(f"there is no shard left for partition {partition}")
        else:
            time.sleep(0.01)
    return int(got.read_text())


def _claim(work: Work, folder: Path, partition: int) -> int | None:
    """Claim a shard that nobody has, first one that this process has in memory."""
    for path in folder.glob("[0-9]*"):
        with suppress(FileNotFoundError):
            owner = path.read_text()
            if owner == str(partition):
                return int(path.name)  # an attempt before this one got no further
            got = folder / f"partition-{owner}"
            if got.exists() and got.read_text() != path.name:
                path.unlink()
    warm = {number for identity, number in _kept if identity == work.identity}
    shards = range(count_of(work.sides))
    for shard in sorted(shards, key=lambda s: (s not in warm, s != partition)):
        if _linked(folder, folder / str(shard), str(partition)):
            return shard
    return None


def _linked(folder: Path, path: Path, text: str) -> bool:
    """Make a file with its text in one step; return whether it was not there."""
    hidden = folder / f".{secrets.token_hex(8)}"
    hidden.write_text(text)
    try:
        os.link(hidden, path)
        return True
    except FileExistsError:
        return False
    finally:
        hidden.unlink()


def count_of(sides: Sequence[int]) -> int:
    """Return how many shards a grid has."""
    count = 1
    for side in sides:
        count *= side
    return count


# --- the shard --------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def router_of(text: str, name: str, sides: tuple[int, ...]) -> tuple[Program, Router]:
    """Return the checked program, and what tells the shards of its rows."""
    from tidelog.engine.shards import Router
    from tidelog.logic.program import Program
    from tidelog.plan.sharding import Grid
    from tidelog.plan.sharding_search import on_grid

    program = Program.parse(text, name)
    return program, Router(program, on_grid(program, Grid(sides)))


@lru_cache(maxsize=64)
def program_of(text: str, name: str, sides: tuple[int, ...], shard: int) -> Program:
    """Return the program of a shard."""
    return router_of(text, name, sides)[1].program_of(shard)


def opened(work: Work, shard: int) -> Shard:
    """Return a shard at the version that the work begins with."""
    from tidelog.durable.files import Files
    from tidelog.engine.shard_state import Shard

    assert work.refs is not None
    ref = work.refs[shard]
    kept = _kept.pop((work.identity, shard), None)
    if kept is not None:
        if kept.catch_up(ref):
            return kept
        Spared.nothing()
    files = Files(Path(work.folder) / "shards" / str(shard))
    program = program_of(work.program, work.program_name, work.sides, shard)
    return Shard.open(files, work.identity, program, ref)


def keep(work: Work, number: int, shard: Shard) -> None:
    """Keep a shard in memory for the next job."""
    while len(_kept) >= _MOST_KEPT:
        _drop(next(iter(_kept)))
    _kept[work.identity, number] = shard


def forget() -> None:
    """Let go of all shards in memory."""
    _kept.clear()
    Spared.nothing()


def _drop(key: tuple[str, int]) -> None:
    """Let go of a shard in memory, if it is there."""
    if _kept.pop(key, None) is not None:
        Spared.nothing()


# --- an epoch ---------------------------------------------------------------------------------


def do_epoch(work: Work, number: int) -> dict[str, Any]:
    """Do an epoch in a shard; return what is to be told of it."""
    program, router = router_of(work.program, work.program_name, work.sides)
    counting = router.sharding.grid.counts
    read: list[Read] = []
    if work.refs is None:
        shard, done = _bootstrap(work, number, program, router, read)
    else:
        shard = opened(work, number)
        shard.watched = frozenset(work.watched)
        done = _update(work, number, shard, program, router, read)
    keep(work, number, shard)
    given = [0, 0]
    for name, version in router.sharding.shown.items():
        if name in done.given and counting(version.placement, number):
            came, went = done.given[name]
            given = [given[0] + came, given[1] + went]
    answer: dict[str, Any] = {
        "ref": done.ref.as_data(),
        "given": given,
        "bootstrapped": done.bootstrapped,
        "views": {},
    }
    for name in work.watched:
        version = router.sharding.shown[name]
        if name in done.changes and counting(version.placement, number):
            answer["views"][name] = _write_changes(work, number, shard, name, done)
    for part in read if number == 0 else ():
        answer["received"] = part.received
        answer["bad"] = {n: [asdict(row) for row in rows] for n, rows in part.bad.items() if rows}
    return answer


def _bootstrap(
    work: Work, number: int, program: Program, router: Router, read: list[Read]
) -> tuple[Shard, ShardDone]:
    from tidelog.durable.files import Files
    from tidelog.engine.shard_state import Shard

    def load(engine: KernelEngine) -> None:
        if work.rows is not None:
            engine._load(work.rows.inserted[number])
            return
        codec = engine._catalog.codec
        read.append(_read(work, number, program, router, codec))
        given = {name: came for name, (came, _) in read[-1].encoded.items()}
        if engine._facts:
            decode = engine._catalog.decode_ordinals
            engine._load({name: decode(name, rows) for name, rows in given.items()})
            return
        names = engine._program.relations
        encode = engine._catalog.encode
        engine.load(
            {name: given[name] if name in given else encode(name, ()) for name in names},
            {name: set() for name in names},
        )

    files = Files(Path(work.folder) / "shards" / str(number))
    own = program_of(work.program, work.program_name, work.sides, number)
    return Shard.create(files, work.identity, own, load, work.epoch)


def _update(
    work: Work, number: int, shard: Shard, program: Program, router: Router, read: list[Read]
) -> ShardDone:
    if work.rows is not None:
        return shard.apply_rows(work.epoch, work.rows.inserted[number], work.rows.deleted[number])
    catalog = shard.engine._catalog
    read.append(_read(work, number, program, router, catalog.codec))
    encoded = read[-1].encoded
    if not shard.engine._facts:
        return shard.apply(work.epoch, encoded)
    decode = catalog.decode_ordinals
    sides = [
        {name: set(decode(name, both[side])) for name, both in encoded.items()} for side in (0, 1)
    ]
    return shard.apply_rows(work.epoch, sides[0], sides[1])


def _read(work: Work, number: int, program: Program, router: Router, codec: Any) -> Read:
    from tidelog.spark.shard_reading import read_parts

    return read_parts(work.files, program, router, number, codec)


def _write_changes(work: Work, number: int, shard: Shard, name: str, done: ShardDone) -> str:
    """Write what an epoch has changed in a view; return the name of the file."""
    import pyarrow as pa

    from tidelog.spark.files import sync_folder, write_synced

    delta = done.changes[name]
    came = _arrow(shard, name, delta.inserted).append_column(
        "+", pa.array([True] * delta.inserted.shape[1], pa.bool_())
    )
    went = _arrow(shard, name, delta.deleted).append_column(
        "+", pa.array([False] * delta.deleted.shape[1], pa.bool_())
    )
    file = f"changes/{work.epoch:012}-{number}-{secrets.token_hex(8)}.arrow"
    write_synced(Path(work.folder) / file, as_bytes(pa.concat_tables([came, went])))
    sync_folder(Path(work.folder) / "changes")
    return file


# --- questions --------------------------------------------------------------------------------


def read_view(work: Work, number: int) -> Iterator[bytes]:
    """Yield the rows of a view that count in a shard, as Arrow streams."""
    from tidelog.engine.saving import given_rows

    _, router = router_of(work.program, work.program_name, work.sides)
    version = router.sharding.shown[work.view]
    if not router.sharding.grid.counts(version.placement, number):
        return
    shard = opened(work, number)
    keep(work, number, shard)
    catalog = shard.engine._catalog
    if work.given:
        rows = catalog.encode(work.view, given_rows(shard.engine, work.view))
    else:
        stored = catalog.relations[work.view]
        rows = stored.ordinals(stored.rows())
    for start in range(0, rows.shape[1], _CHUNK):
        yield as_bytes(_arrow(shard, work.view, rows[:, start : start + _CHUNK]))


def _arrow(shard: Shard, name: str, ordinals: Any) -> pa.Table:
    import pyarrow as pa

    from tidelog.engine.arrow import arrow_column

    relation = shard.engine._program.relations[name]
    if not relation.columns:
        return pa.table({"": pa.array([True] * ordinals.shape[1], pa.bool_())})
    codec = shard.engine._catalog.codec
    arrays = [
        arrow_column(column, field.type, codec)
        for column, field in zip(ordinals, relation.columns, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=[field.name for field in relation.columns])


def as_bytes(table: pa.Table) -> bytes:
    """Return a table as an Arrow stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def in_this_process(work: Work) -> list[tuple[int, dict[str, Any], bytes]]:
    """Do the work in all shards, one after the other."""
    return [
        (shard, head, data)
        for shard in range(count_of(work.sides))
        for head, data in _answers(work, shard)
    ]
