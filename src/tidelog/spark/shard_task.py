"""The shards of a pipeline, in Spark's workers. Nothing here opens a session.

A shard has a state for each stage of the program: a *cell* (sharding/cells.py). A task takes one
cell from the memory of its process or from its files. Spark assigns tasks to processes as it likes,
so a process may have a cell as it was some epochs ago: then it reads the epochs that it lacks.
Cells in memory save time, and nothing depends on them.

Epochs are in shard_routing.py and shard_epoch.py; here are the views.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelog.errors import TidelogError
from tidelog.spark.worker_process import GcFreeze, begin_task

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.logic.program import Program
    from tidelog.sharding.cells import Cells
    from tidelog.sharding.shard_state import Shard, ShardDone, ShardRef

SCHEMA = "shard int, head string, data binary"
_CHUNK = 1 << 16  # rows in one part of a view
_MOST_KEPT = 32  # cells that a process keeps in memory


_kept: dict[tuple[str, int], Shard] = {}


@dataclass(frozen=True)
class Work:
    """The state of all shards, and what to read of it."""

    folder: str
    identity: str
    program: str
    program_name: str
    sides: tuple[int, ...]
    refs: tuple[ShardRef, ...] | None
    """The files of the cells; None if there are none yet."""
    view: str = ""
    """The relation to read."""
    given: bool = False
    """Whether to read only its given rows."""
    counted: bool = False
    """Whether to answer only how many rows it has."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the view in the shards of a partition."""
        import pyarrow as pa

        begin_task()
        for batch in batches:
            for shard in batch.column(0).to_pylist():
                for head, data in answers(self, int(shard)):
                    yield pa.RecordBatch.from_pydict(
                        {
                            "shard": pa.array([shard], pa.int32()),
                            "head": pa.array([json.dumps(head)], pa.string()),
                            "data": pa.array([data], pa.binary()),
                        }
                    )


def answers(work: Work, shard: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the parts of a view from a shard, each with a head, which may be an error."""
    try:
        if work.counted:
            yield {"rows": count_view(work, shard)}, b""
        else:
            for part in read_view(work, shard):
                yield {}, part
    except TidelogError as error:
        # Returned and not raised: another attempt would fail in the same way.
        drop((work.identity, _cell(work, shard)))
        yield {"error": type(error).__name__, "message": str(error)}, b""
    except BaseException:
        drop((work.identity, _cell(work, shard)))
        raise


def _cell(work: Work, shard: int) -> int:
    return cells_of(work.program, work.program_name, work.sides).cell_of(work.view, shard)


def count_of(sides: Sequence[int]) -> int:
    """Return the number of shards of a grid."""
    count = 1
    for side in sides:
        count *= side
    return count


# --- the shard --------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def cells_of(text: str, name: str, sides: tuple[int, ...]) -> Cells:
    """Return the cells of a program."""
    from tidelog.logic.program import Program
    from tidelog.sharding.cells import Cells
    from tidelog.sharding.layout import layout_on
    from tidelog.sharding.sharding import Grid

    program = Program.parse(text, name)
    return Cells(program, layout_on(program, Grid(sides)))


@lru_cache(maxsize=64)
def program_of(text: str, name: str, sides: tuple[int, ...], cell: int) -> Program:
    """Return the program of a cell."""
    return cells_of(text, name, sides).program_of(cell)


def opened(work: Work, cell: int) -> Shard:
    """Return a cell in the state that the work begins with."""
    from tidelog.durable.files import Files
    from tidelog.sharding.shard_state import Shard

    assert work.refs is not None
    ref = work.refs[cell]
    kept = _kept.pop((work.identity, cell), None)
    if kept is not None:
        if kept.catch_up(ref):
            return kept
        GcFreeze.unfreeze()
    files = Files(Path(work.folder) / "shards" / str(cell))
    program = program_of(work.program, work.program_name, work.sides, cell)
    return Shard.open(files, work.identity, program, ref)


def keep(work: Work, cell: int, shard: Shard) -> None:
    """Keep a cell in memory for the next job."""
    while len(_kept) >= _MOST_KEPT:
        drop(next(iter(_kept)))
    _kept[work.identity, cell] = shard


def kept_shard(work: Work, number: int) -> Shard | None:
    """Return a shard that is in memory, whatever its state; None if it is not."""
    return _kept.get((work.identity, number))


def forget() -> None:
    """Drop all cells in memory."""
    _kept.clear()
    GcFreeze.unfreeze()


def drop(key: tuple[str, int]) -> None:
    """Drop a cell from memory, if it is there."""
    if _kept.pop(key, None) is not None:
        GcFreeze.unfreeze()


# --- views ------------------------------------------------------------------------------------


def changes_of_view(epoch: int, shard: Shard, name: str, done: ShardDone) -> pa.Table:
    """Return the changes of a view in an epoch, with types that Spark has."""
    import pyarrow as pa

    from tidelog.spark.frames import for_spark
    from tidelog.spark.view_changes import signed

    delta = done.changes[name]
    deleted, inserted = delta.deleted.shape[1], delta.inserted.shape[1]
    rows = pa.concat_tables(
        [arrow_rows(shard, name, delta.deleted), arrow_rows(shard, name, delta.inserted)]
    )
    if not shard.engine.program.relations[name].columns:
        rows = rows.select([])
    return for_spark(signed(rows, epoch, deleted, inserted))


def write_changes(work: Work, epoch: int, number: int, table: pa.Table) -> str:
    """Write the changes of a view in an epoch for Spark to read; return the name of the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tidelog.io.atomic import sync_folder, write_synced
    from tidelog.spark.view_changes import EPOCH

    # Numbers differ too much for dictionaries, which take half of the time to write them.
    texts = [column.name for column in table.schema if pa.types.is_string(column.type)]
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, use_dictionary=[*texts, EPOCH], write_statistics=False)
    file = changes_file(epoch, number)
    write_synced(Path(work.folder) / file, sink.getvalue())
    sync_folder(Path(work.folder) / "changes")
    return file


def changes_file(epoch: int, number: int, ending: str = ".parquet") -> str:
    """Return a new name for the changes of a view in a shard."""
    return f"changes/{epoch:012}-{number}-{secrets.token_hex(8)}{ending}"


def read_view(work: Work, number: int) -> Iterator[bytes]:
    """Yield the rows that a view takes from a shard, as Arrow streams."""
    return map(as_bytes, view_tables(work, number))


def count_view(work: Work, number: int) -> int:
    """Return how many rows a view takes from a shard."""
    shard = shown_shard(work, number)
    return 0 if shard is None else len(shard.engine.reader(work.view))


def view_tables(work: Work, number: int) -> Iterator[pa.Table]:
    """Yield the rows that a view takes from a shard, in tables of limited size."""
    from tidelog.engine.tree_reads import stored_rows

    shard = shown_shard(work, number)
    if shard is None:
        return
    catalog = shard.engine.catalog
    if work.given:
        rows = catalog.encode(work.view, shard.engine.state.given_rows(work.view))
    else:
        stored = stored_rows(catalog, shard.engine.program.relations[work.view])
        rows = stored.ordinals(stored.rows())
    for start in range(0, rows.shape[1], _CHUNK):
        yield arrow_rows(shard, work.view, rows[:, start : start + _CHUNK])


def shown_shard(work: Work, number: int) -> Shard | None:
    """Return a shard in its state; None if the view takes no rows from it."""
    cells = cells_of(work.program, work.program_name, work.sides)
    if not cells.is_shown_in(work.view, number):
        return None
    cell = cells.cell_of(work.view, number)
    shard = opened(work, cell)
    keep(work, cell, shard)
    return shard


def arrow_rows(shard: Shard, name: str, ordinals: Any) -> pa.Table:
    """Return rows of a relation, given as columns of ordinals, as a table."""
    import pyarrow as pa

    from tidelog.engine.arrow import arrow_column

    relation = shard.engine.program.relations[name]
    if not relation.columns:
        return pa.table({"": pa.array([True] * ordinals.shape[1], pa.bool_())})
    codec = shard.engine.state.codec
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
    """Read the view in all shards, one after the other."""
    return [
        (shard, head, data)
        for shard in range(count_of(work.sides))
        for head, data in answers(work, shard)
    ]
