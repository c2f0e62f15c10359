"""What an epoch reads: parts of all sources, as one frame for one Spark job.

The frame is the stream's own, where the schemas of all new files are as the stream expects. Parts
that are read in another way are united with it: snapshots, tables, files of another schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelog.spark.envelopes import ORDERED, file_numbers
from tidelog.spark.frames import to_frame
from tidelog.spark.jobs import reason
from tidelog.spark.listing import File, is_local, local_file, plain_path
from tidelog.spark.ordering import SourceFile, in_order
from tidelog.spark.retries import outage
from tidelog.spark.sources import Batch, Part, PipelineSource
from tidelog.spark.union import TaggedFrame, split, tagged, united


@dataclass(frozen=True)
class TaggedPart:
    """A part of an epoch, and the tag of its rows in the frame."""

    tag: int
    source: PipelineSource
    part: Part


class EpochInput:
    """The parts of an epoch.

    `stream` is the frame of a micro-batch, in which the tag of a source is its number among
    `streams`; `addresses` has its files. `batches` has what each source contributes.
    """

    def __init__(
        self,
        spark: Any,
        batches: Sequence[tuple[PipelineSource, Batch]],
        stream: TaggedFrame | None = None,
        streams: Sequence[PipelineSource] = (),
        addresses: Sequence[str] = (),
    ) -> None:
        self._spark, self._stream, self._addresses = spark, stream, addresses
        self.batches = batches
        self.known_files: dict[int, SourceFile] = {}
        """The files by the numbers that their rows have, when the rows are read."""
        self.parts: list[TaggedPart] = []
        """All parts, in the order of the sources."""
        tags = {source.name: tag for tag, source in enumerate(streams)}
        free = len(tags)
        for source, batch in batches:
            for part in batch.parts:
                if part.frame is None and part.table is None:
                    self.parts.append(TaggedPart(tags[source.name], source, part))
                else:
                    self.parts.append(TaggedPart(free, source, part))
                    free += 1
        streamed = {p.tag for p in self.parts if p.tag < len(tags)}
        self._left_out = sorted(set(tags.values()) - streamed)

    @property
    def is_micro_batch(self) -> bool:
        """Whether the epoch is a micro-batch of the pipeline's own query."""
        return self._stream is not None

    def frame(self, *, with_tables: bool, numbered: bool = True) -> TaggedFrame | None:
        """Return all rows that Spark reads, with tags; None if there are none.

        Tables were read already. With `with_tables` they are in the frame, too. If order matters,
        rows have a number, unless the caller numbers them.
        """
        frames = []
        if self._stream is not None and len(self._left_out) < len(self._stream.columns):
            left_out = self._left_out
            frames.append(self._stream.without(left_out) if left_out else self._stream)
        for tagged_part in self.parts:
            part = tagged_part.part
            if part.frame is not None:
                frames.append(tagged(part.frame, tagged_part.tag))
            elif part.table is not None and with_tables:
                frames.append(tagged(to_frame(self._spark, _plain(part.table)), tagged_part.tag))
        if not frames:
            return None
        together = united(frames)
        return together.numbered() if numbered and self.is_ordered else together

    @property
    def is_ordered(self) -> bool:
        """Whether the order of rows matters."""
        return any(source.spec.mode in ORDERED for source, _ in self.batches)

    def tables(self) -> dict[int, pa.Table]:
        """Return the rows of each part, by tag, in the order in which they apply."""
        tables = {p.tag: p.part.table for p in self.parts if p.part.table is not None}
        frame = self.frame(with_tables=False)
        if frame is None:
            return tables
        try:
            whole = frame.frame.toArrow()
            self.known_files = files = self.files()
        except Exception as error:  # Spark's own, of either kind of session
            raise outage(f"Spark could not read the sources: {reason(error)}", error) from error
        for tag, table in split(whole, frame.columns).items():
            tables[tag] = in_order(table, files) if len(table) else table
        return tables

    def files(self) -> dict[int, SourceFile]:
        """Return the files of an epoch by the numbers that their rows have."""
        known: dict[str, SourceFile] = {}
        for _, batch in self.batches:
            for rank, own in enumerate(batch.files):
                known[own.path] = SourceFile(rank, own.name)
        if not known:
            return {}
        frames = [p.part.frame for p in self.parts if p.part.frame is not None]
        addresses = [*self._addresses, *(a for frame in frames for a in frame.inputFiles())]
        found = {}
        for address in addresses:
            file = known.get(plain_path(address))
            if file is not None:
                found.update(dict.fromkeys(file_numbers(address), file))
        return found

    def rewritten(self) -> list[str]:
        """Return the local files that have changed since the epoch began."""
        return [
            file.path
            for _, batch in self.batches
            for file in batch.files
            if is_local(file.path) and _has_changed(file)
        ]


def _has_changed(file: File) -> bool:
    path = plain_path(file.path)
    try:
        now = local_file(path, path)
    except OSError:
        return True
    return now.offset != file.offset


def _plain(table: pa.Table) -> pa.Table:
    """Return a table without dictionaries, which Spark does not take."""
    for i, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            table = table.set_column(i, column.name, table[i].cast(column.type.value_type))
    return table
