"""The record of one epoch: given rows, changes of views, and new dictionary entries.

A record can be written in two parts: the given rows first, the changes of views when they are
computed (durable/log.py).

A payload is a line of JSON that describes what follows, zeros up to a multiple of 8 bytes, and
arrays. Rows are packed into words as in the store, and the record has the domains they were packed
with. So it can be read after the domains have changed, given the dictionaries.
"""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidelog.durable.dictionaries import Entries, parse_type
from tidelog.kernel import rows as kernel
from tidelog.store.domain import Domain
from tidelog.store.layout import Layout
from tidelog.store.run import Words

_MICROSECONDS = 1_000_000
_to_json = json.JSONEncoder(separators=(",", ":")).encode  # `dumps` would make an encoder per call


class Role(enum.StrEnum):
    """What the rows of a change are."""

    GIVEN = "given"  # given rows of a relation that also has rules
    VIEW = "view"  # all rows of a relation with rules
    BOTH = "both"  # rows of a relation without rules: given, and shown by its view
    GIVEN_FACT = "stated"  # formats 1 and 2 only: given rows that are program facts as well

    @property
    def is_given(self) -> bool:
        """Whether these rows were given by the transaction."""
        return self in (Role.GIVEN, Role.BOTH)

    @property
    def is_view(self) -> bool:
        """Whether a view of the relation shows these rows."""
        return self in (Role.VIEW, Role.BOTH)


class PackedChange(NamedTuple):
    """The net change of one relation: packed rows, and the domains they were packed with."""

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
        """Return domains equal to those that the rows were packed with."""
        return [domain_like(bias, bits) for bias, bits in zip(self.biases, self.bits, strict=True)]

    def _unpacked(self, words: Words, layout: Layout) -> NDArray[np.int64]:
        n = words.shape[1]
        columns = np.empty((len(self.bits), n), np.int64)
        kernel.unpack(words, n, layout.by_column, columns)
        columns += np.array(self.biases, np.int64)[:, None]
        return columns


def domain_like(bias: int, bits: int) -> Domain:
    """Return a domain with this bias and number of bits."""
    domain = Domain()
    domain.bias, domain.bits = bias, bits
    return domain


@functools.lru_cache(maxsize=1024)
def _description(relation: str, role: Role, biases: tuple[int, ...], bits: tuple[int, ...]) -> str:
    return ",".join(map(_to_json, (relation, role, biases, bits)))


class NewProgram(NamedTuple):
    """The program from an epoch on."""

    text: str
    name: str
    strategies: Mapping[str, str]
    """How the relations that rules derive are maintained, for readers beside the writer."""
    declared: tuple[str, ...]
    """The relations that the program did not have before."""


class EpochRecord(NamedTuple):
    """One epoch. A named tuple, because each commit makes one and they are cheap to make."""

    epoch: int
    time: float
    """When it was committed, in seconds since 1970."""
    changes: Sequence[PackedChange]
    entries: Sequence[Entries]
    program: NewProgram | None = None
    """The program from this epoch on, if the epoch has changed it."""

    def encode(self) -> bytes:
        """Return the payload of the record."""
        # Composed by hand for speed: every commit runs this. Descriptions of relations are cached.
        parts = [b""]
        changes: list[str] = []
        for rows in self.changes:
            words, more = rows.inserted.shape
            description = _description(rows.relation, rows.role, rows.biases, rows.bits)
            changes.append(f"[{description},{words},{more},{rows.deleted.shape[1]}]")
            parts += (rows.inserted.tobytes(), rows.deleted.tobytes())
        dictionaries: list[str] = []
        for entries in self.entries:
            lengths, content = entries.lengths, entries.content
            sizes = f"{entries.first},{entries.count},{len(lengths)},{len(content)}"
            dictionaries.append(f"[{_to_json(str(entries.type))},{sizes}]")
            parts += (lengths.tobytes(), content.tobytes(), bytes(-content.nbytes % 8))
        time = round(self.time * _MICROSECONDS)  # the number of digits does not vary
        program = "" if self.program is None else f',"program":{_to_json(self.program)}'
        head = (
            f'{{"epoch":{self.epoch},"time":{time},"changes":[{",".join(changes)}],'
            f'"tables":[{",".join(dictionaries)}]{program}}}\n'
        ).encode()
        parts[0] = head + bytes(-len(head) % 8)
        return b"".join(parts)

    def with_views(self, views: EpochRecord) -> EpochRecord:
        """Return the whole epoch; this record is its given part, `views` its view part."""
        changes, entries = (*self.changes, *views.changes), (*self.entries, *views.entries)
        return EpochRecord(self.epoch, views.time, changes, entries, self.program)

    @classmethod
    def decode(cls, payload: memoryview, *views: memoryview) -> EpochRecord:
        """Return the epoch that `encode` wrote, in one part or two. Checksums were checked."""
        first = cls._decoded(payload)
        return first.with_views(cls._decoded(views[0])) if views else first

    @classmethod
    def _decoded(cls, payload: memoryview) -> EpochRecord:
        data = bytes(payload)
        stop = data.index(b"\n") + 1
        described = json.loads(data[:stop])
        at = stop + -stop % 8

        def take(count: int, dtype: Any) -> NDArray[Any]:
            nonlocal at
            array = np.frombuffer(data, dtype, count, at).copy()
            at += array.nbytes + -array.nbytes % 8
            return array

        changes = []
        for relation, role, biases, bits, words, more, less in described["changes"]:
            inserted = take(words * more, np.int64).reshape(words, more)
            deleted = take(words * less, np.int64).reshape(words, less)
            changes.append(
                PackedChange(relation, Role(role), tuple(biases), tuple(bits), inserted, deleted)
            )
        dictionaries = []
        for text, first, count, lengths, content in described["tables"]:
            type_ = parse_type(text)
            numbers = take(lengths, np.int64)
            held = take(content, np.uint8 if text == "symbol" else np.int64)
            dictionaries.append(Entries(type_, first, count, numbers, held))
        program = None
        if "program" in described:
            text, name, strategies, declared = described["program"]
            program = NewProgram(text, name, strategies, tuple(declared))
        time = described["time"] / _MICROSECONDS
        return cls(described["epoch"], time, changes, dictionaries, program)
