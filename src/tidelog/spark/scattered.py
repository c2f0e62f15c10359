"""The net changes of a scattered view, by Spark.

A row of a scattered view can be in several shards. The view has it once: it is inserted with its
first copy, and deleted with its last one. Each shard has written its own changes (shard_task.py),
which say nothing about other shards. So the shards are asked which of the changed rows they have
now, each by a search in its sorted rows. The rest is a sum for each row, backwards in time:

    row    signs by epoch    copies now      copies after 7, 8, 9    net change
    a      7: +1   9: +1     2               1  1  2                 7: + a
    b      8: -1   9: -1     0               2  1  0                 9: - b

    copies before an epoch = copies after it - its signs

One Spark job does this and writes the net changes to files. The driver sees their names, and how
many rows each has. The cost follows the change, not the view.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tidelog.engine.tree_reads import stored_rows
from tidelog.io.conversion import ConversionOptions, convert
from tidelog.io.tabular import arrow_schema
from tidelog.spark.frames import for_spark, frame_schema
from tidelog.spark.jobs import settings
from tidelog.spark.listing import spark_path
from tidelog.spark.shard_frames import change_in_files
from tidelog.spark.shard_task import Work, arrow_rows, cells_of, count_of, shown_shard
from tidelog.spark.table_sql import column
from tidelog.spark.view_changes import EPOCH, OP, ViewChange
from tidelog.spark.worker_process import begin_task
from tidelog.store.codec import Codec
from tidelog.store.relation import StoredRelation

NET = "net"
"""The folder below that of the state with net changes that sinks have not written yet."""
_COPIES, _SIGN, _NOW, _AFTER, _OF = (
    "tidelog copies", "tidelog sign", "tidelog now", "tidelog after", "tidelog of",
)  # fmt: skip
_SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}


@dataclass(frozen=True)
class PresentRows:
    """A task that returns those of the changed rows that a shard has."""

    work: Work
    files: tuple[str, ...]
    """The files with the changes of all shards."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are in the shards of a partition."""
        begin_task()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from for_spark(self._present(int(number))).to_batches()

    def _present(self, number: int) -> pa.Table:
        work = self.work
        program = cells_of(work.program, work.program_name, work.sides).program
        relation = program.relations[work.view]
        schema = arrow_schema(relation, program.records)
        shard = shown_shard(work, number)
        if shard is None:
            return schema.empty_table()
        stored = stored_rows(shard.engine.catalog, shard.engine.program.relations[work.view])
        found: set[Any] = set()
        for file in self.files:
            table = pq.ParquetFile(file).read(columns=schema.names).cast(schema)
            columns = []
            for field, chunks in zip(relation.columns, table.columns, strict=True):
                array = pa.concat_arrays([*chunks.chunks, pa.array([], chunks.type)])
                columns.append(
                    convert(array, field.type, program.records, ConversionOptions()).values
                )
            found.update(zip(*columns, strict=True))
        types = [field.type for field in relation.columns]
        ordinals = known_ordinals(sorted(found, key=str), types, shard.engine.state.codec)
        return arrow_rows(shard, work.view, present_rows(stored, ordinals))


def known_ordinals(rows: Sequence[Any], types: Sequence[Any], codec: Codec) -> NDArray[np.int64]:
    """Return the rows whose values all have ordinals. Nothing is added to a dictionary."""
    columns = []
    for at, type_ in enumerate(types):
        known: dict[Any, int | None] = {}
        for row in rows:
            value = row[at]
            if value not in known:
                known[value] = codec.find(value, type_)
        columns.append([known[row[at]] for row in rows])
    kept = [row for row in zip(*columns, strict=True) if None not in row]
    return np.array(kept, np.int64).reshape(len(kept), len(types)).T


def present_rows(stored: StoredRelation, ordinals: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return those rows that a relation has, as columns of ordinals."""
    fitting = np.ones(ordinals.shape[1], np.bool_)
    for domain, own in zip(stored.domains, ordinals, strict=True):
        if not domain.is_raw:  # a value without a code is in no row
            fitting &= (own >= domain.bias) & (own - domain.bias <= domain.mask)
    words = stored.pack_ordinals(np.ascontiguousarray(ordinals[:, fitting]))
    return stored.ordinals(stored.split(words)[1])


class ScatteredChanges:
    """Computes the net changes of scattered views, and keeps them until the next epoch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, int, int], list[tuple[int, int, list[Path]]]] = {}
        self.clear()

    def clear(self) -> None:
        """Remove the files: there are new epochs, or a process has left them."""
        self._known.clear()
        shutil.rmtree(self._folder / NET, ignore_errors=True)

    def read(
        self, spark: Any, work: Work, schema: pa.Schema, epochs: Mapping[int, Sequence[str]]
    ) -> Iterator[ViewChange]:
        """Yield the net change of a view in each epoch that changes it.

        `epochs` has the changes of the shards: the files of each epoch, up to the last one.
        """
        filled = {epoch: files for epoch, files in epochs.items() if files}
        if not filled:
            return
        key = (work.view, min(filled), max(epochs))
        if key not in self._known:
            self._known[key] = self._computed(spark, work, schema, filled)
        for epoch, rows, files in self._known[key]:
            yield change_in_files(spark, epoch, rows, files, schema)

    def _computed(
        self, spark: Any, work: Work, schema: pa.Schema, epochs: Mapping[int, Sequence[str]]
    ) -> list[tuple[int, int, list[Path]]]:
        names = [str(self._folder / file) for files in epochs.values() for file in files]
        target = self._folder / NET / secrets.token_hex(8)
        frame = net_changes(spark, work, schema, names)
        with settings(spark, _SETTINGS):
            frame.write.partitionBy(_OF).parquet(spark_path(str(target)))
        found = []
        for epoch in sorted(epochs):
            files = sorted((target / f"{_OF}={epoch}").glob("*.parquet"))
            rows = sum(pq.read_metadata(file).num_rows for file in files)
            if rows:
                found.append((epoch, rows, files))
        return found


def net_changes(spark: Any, work: Work, schema: pa.Schema, files: Sequence[str]) -> Any:
    """Return the net changes of a scattered view, given the files with those of the shards."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    columns = [F.col(column(name)) for name in schema.names]
    whole = pa.schema([*schema, pa.field(OP, pa.string()), pa.field(EPOCH, pa.int64())])
    paths = [spark_path(file) for file in files]
    changed = spark.read.schema(frame_schema(spark, whole)).parquet(*paths)
    sign = F.sum(F.when(F.col(OP) == "+", 1).otherwise(-1))
    signs = changed.groupBy(*columns, EPOCH).agg(sign.alias(_SIGN))
    signs = signs.withColumn(_COPIES, F.lit(0).cast("long"))
    count = count_of(work.sides)
    shards = spark.range(0, count, 1, count)
    here = shards.mapInArrow(PresentRows(work, tuple(files)), frame_schema(spark, schema))
    nothing = {EPOCH: F.lit(None).cast("long"), _SIGN: F.lit(0).cast("long")}
    here = here.withColumns({**nothing, _COPIES: F.lit(1).cast("long")})
    of_row = Window.partitionBy(*columns)
    later = of_row.orderBy(F.col(EPOCH).desc_nulls_first()).rowsBetween(
        Window.unboundedPreceding, -1
    )
    since = F.coalesce(F.sum(F.col(f"`{_SIGN}`")).over(later), F.lit(0))
    counted = signs.unionByName(here).withColumn(_NOW, F.sum(F.col(f"`{_COPIES}`")).over(of_row))
    counted = counted.withColumn(_AFTER, F.col(f"`{_NOW}`") - since).where(F.col(EPOCH).isNotNull())
    after = F.col(f"`{_AFTER}`")
    before = after - F.col(f"`{_SIGN}`")
    is_new, is_gone = (before == 0) & (after > 0), (before > 0) & (after == 0)
    net = counted.where(is_new | is_gone).withColumn(OP, F.when(is_new, "+").otherwise("-"))
    return net.select(*columns, OP, EPOCH, F.col(EPOCH).alias(_OF))
