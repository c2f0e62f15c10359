"""The record of one epoch: what was given, what changed, and the new entries of dictionaries.

It can be written in two parts: what was given, and what became of the views.

A payload is a line of JSON that says what follows, zeros up to a multiple of 8 bytes, and arrays.
Rows are words as the store packs them, with the domains they were packed for: so a record can be
read when the domains have changed, by whoever has the dictionaries.
"""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.tables import Entries, type_of
from tidelog.kernel import rows as kernel
from tidelog.store.domain import Domain
from tidelog.store.layout import Layout
from tidelog.store.run import Words

_MICROSECONDS = 1_000_000
_to_json = json.JSONEncoder(separators=(",", ":")).encode  # made once: `dumps` makes it each time


class Role(enum.StrEnum):
    """What the rows of a change are."""

    GIVEN = "given"  # the given rows of a relation that rules derive, too
    VIEW = "view"  # all rows of such a relation
    BOTH = "both"  # of a relation that no rule derives
    STATED = "stated"  # given rows that the program states as well

    @property
    def is_given(self) -> bool:
        """Whether these rows were given by the transaction."""
        return self in (Role.GIVEN, Role.BOTH)

    @property
    def is_view(self) -> bool:
        """Whether a view of the relation shows these rows."""
        return self in (Role.VIEW, Role.BOTH)


class Rows(NamedTuple):
    """The net change of one relation: packed rows, and the domains that they were packed for."""

    relation: str
    role: Role
    biases: tuple[int, ...]
    bits: tuple[int, ...]
    inserted: Words
    deleted: Words

    def ordinals(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return inserted and deleted rows as columns of ordinals."""
        layout = Layout(range(len(self.bits)), self.domains())
        return self._unpacked(self.inserted, layout), self._unpacked(self.deleted, layout)

    def domains(self) -> list[Domain]:
        """Return domains like those that the rows were packed for."""
        return [domain_like(bias, bits) for bias, bits in zip(self.biases, self.bits, strict=True)]

    def _unpacked(self, words: Words, layout: Layout) -> NDArray[np.int64]:
        n = words.shape[1]
        columns = np.empty((len(self.bits), n), np.int64)
        kernel.unpack(words, n, layout.by_column, columns)
        columns += np.array(self.biases, np.int64)[:, None]
        return columns


def domain_like(bias: int, bits: int) -> Domain:
    """Return a domain that writes ordinals as these numbers say."""
    domain = Domain()
    domain.bias, domain.bits = bias, bits
    return domain


@functools.lru_cache(maxsize=1024)
def _about(relation: str, role: Role, biases: tuple[int, ...], bits: tuple[int, ...]) -> str:
    return ",".join(map(_to_json, (relation, role, biases, bits)))


class EpochRecord(NamedTuple):
    """What is known of one epoch. A named tuple, since each commit makes one."""

    epoch: int
    time: float
    """When it was committed, in seconds since 1970."""
    changes: Sequence[Rows]
    entries: Sequence[Entries]

    def encode(self) -> bytes:
        """Return the payload of the record."""
        # Put together by hand: each commit comes by here, and what is about a relation stays.
        parts = [b""]
        changes: list[str] = []
        for rows in self.changes:
            words, more = rows.inserted.shape
            about = _about(rows.relation, rows.role, rows.biases, rows.bits)
            changes.append(f"[{about},{words},{more},{rows.deleted.shape[1]}]")
            parts += (rows.inserted.tobytes(), rows.deleted.tobytes())
        tables: list[str] = []
        for entries in self.entries:
            lengths, content = entries.lengths, entries.content
            sizes = f"{entries.first},{entries.count},{len(lengths)},{len(content)}"
            tables.append(f"[{_to_json(str(entries.type))},{sizes}]")
            parts += (lengths.tobytes(), content.tobytes(), bytes(-content.nbytes % 8))
        time = round(self.time * _MICROSECONDS)  # always as many digits
        head = (
            f'{{"epoch":{self.epoch},"time":{time},"changes":[{",".join(changes)}],'
            f'"tables":[{",".join(tables)}]}}\n'
        ).encode()
        parts[0] = head + bytes(-len(head) % 8)
        return b"".join(parts)

    def with_views(self, views: EpochRecord) -> EpochRecord:
        """Return the whole epoch, of which this is the given part."""
        changes, entries = (*self.changes, *views.changes), (*self.entries, *views.entries)
        return EpochRecord(self.epoch, views.time, changes, entries)

    @classmethod
    def decode(cls, payload: memoryview, *views: memoryview) -> EpochRecord:
        """Return what `encode` has written, in one part or two. The checksums were right."""
        first = cls._decoded(payload)
        return first.with_views(cls._decoded(views[0])) if views else first

    @classmethod
    def _decoded(cls, payload: memoryview) -> EpochRecord:
        data = bytes(payload)
        stop = data.index(b"\n") + 1
        about = json.loads(data[:stop])
        at = stop + -stop % 8

        def take(count: int, dtype: Any) -> NDArray[Any]:
            nonlocal at
            array = np.frombuffer(data, dtype, count, at).copy()
            at += array.nbytes + -array.nbytes % 8
            return array

        changes = []
        for relation, role, biases, bits, words, more, less in about["changes"]:
            inserted = take(words * more, np.int64).reshape(words, more)
            deleted = take(words * less, np.int64).reshape(words, less)
            changes.append(
                Rows(relation, Role(role), tuple(biases), tuple(bits), inserted, deleted)
            )
        tables = []
        for text, first, count, lengths, content in about["tables"]:
            type_ = type_of(text)
            numbers = take(lengths, np.int64)
            held = take(content, np.uint8 if text == "symbol" else np.int64)
            tables.append(Entries(type_, first, count, numbers, held))
        return cls(about["epoch"], about["time"] / _MICROSECONDS, changes, tables)
