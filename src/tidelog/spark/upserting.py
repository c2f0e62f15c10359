"""Keyed upserts: which rows of an epoch count, and which rows they replace.

Of the rows that arrive for a key, the newest one counts: that with the largest sequence, and of
several the last one. It counts for nothing if the key has seen a larger sequence before. Otherwise
it replaces what its key has, or deletes it.

    arrived      newest of a key     against the state        change
    7  at 3      7  at 5             7: known at 4, row a     - a  + the new row; 7 at 5, not at 4
    7  at 5      8  at 2  deletes    8: known at 3, row b     none: it came too late
    8  at 2

Everything is in columns of ordinals. The state is asked by a probe (sharding/key_relations.py): an
engine finds the rows of some keys by its rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelog.engine.arrow import arrow_column, ordinals_of
from tidelog.engine.kernel import KernelEngine
from tidelog.io.columns import CheckedTable
from tidelog.io.tabular import CheckedRows
from tidelog.logic.program import Program, Relation
from tidelog.sharding.key_relations import Upsert
from tidelog.spark.checking import Checked
from tidelog.spark.epoch_changes import ArrivedKeys, EpochChanges, Given
from tidelog.store.codec import Codec
from tidelog.values.types import Type

Array = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Newest:
    """The newest row of each key that has arrived."""

    keys: Array
    """Columns of ordinals, one row for each key."""
    places: Array
    """Where these rows are among those that arrived."""
    deletes: Bools
    """Whether the row deletes its key."""
    at: Array | None
    """The sequences, if there are any."""

    def where(self, which: Bools) -> Newest:
        """Return some of them."""
        at = None if self.at is None else self.at[which]
        return Newest(self.keys[:, which], self.places[which], self.deletes[which], at)


def newest(keys: Array, inserted: Bools, at: Array | None) -> Newest:
    """Return the newest row of each key, of rows in the order of their source."""
    by = [*keys[::-1]] if at is None else [at, *keys[::-1]]
    order = np.lexsort(by)  # stable: the last of equal rows stays the last
    ordered = keys[:, order]
    last = np.ones(len(order), np.bool_)
    last[:-1] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    places = order[last]
    return Newest(keys[:, places], places, ~inserted[places], None if at is None else at[places])


def key_ordinals(rows: Given, upsert: Upsert, types: Sequence[Type], codec: Codec) -> Array:
    """Return the keys of rows. The other columns may have no value in rows that delete."""
    own = [types[i] for i in upsert.keys]
    if isinstance(rows, CheckedTable):
        return ordinals_of(CheckedTable(rows.table.select(list(upsert.keys))), own, codec)
    return codec.encode_rows([tuple(row[i] for i in upsert.keys) for row in rows], own)


@dataclass(frozen=True)
class Replaced:
    """What the newest rows do to a state."""

    newest: Newest
    """Those that are not too late."""
    rows: Mapping[str, Array]
    """The rows that their keys have now, by relation that was asked."""
    sequences: tuple[Array, Array] | None
    """The inserted and the deleted rows of the relation of sequences, if there is one."""


def replace_in(
    engine: KernelEngine | None, upsert: Upsert, found: Newest, asked: Sequence[str]
) -> Replaced:
    """Find what the newest rows replace in the state of an engine; None is a state without rows.

    `asked` has the names of the relations with the replaced rows: in a shard there may be several.
    """
    if engine is None:
        sequences = None
        if found.at is not None:
            rows = np.concatenate([found.keys, found.at[None]])
            sequences = rows, rows[:, :0]
        return Replaced(found, {}, sequences)
    views = [*asked, upsert.known] if found.at is not None else asked
    rows_of = engine.probe({upsert.asked: found.keys}, views)
    sequences = None
    if found.at is not None:
        known = rows_of.pop(upsert.known)
        has = np.zeros(len(found.places), np.bool_)
        last = np.zeros(len(found.places), np.int64)
        where = positions(found.keys, known[:-1])
        has[where], last[where] = True, known[-1]
        late = has & (last > found.at)
        moved = ~late & ~(has & (last == found.at))
        new = np.concatenate([found.keys, found.at[None]])
        old = np.concatenate([found.keys, last[None]])
        sequences = new[:, moved], old[:, moved & has]
        if late.any():
            for name, rows in rows_of.items():
                of = positions(found.keys, rows[list(upsert.keys)])
                rows_of[name] = rows[:, ~late[of]]
            found = found.where(~late)
    return Replaced(found, rows_of, sequences)


def positions(keys: Array, wanted: Array) -> Array:
    """Return where each of the wanted keys is. `keys` are distinct, and have all of them."""
    return _first_equal(np.concatenate([keys, wanted], axis=1))[keys.shape[1] :]


def other_rows(rows: Array, kept: Array) -> Array:
    """Return the rows that are not among those kept."""
    if not rows.shape[1] or not kept.shape[1]:
        return rows
    first = _first_equal(np.concatenate([kept, rows], axis=1))[kept.shape[1] :]
    return rows[:, first >= kept.shape[1]]


def _first_equal(rows: Array) -> Array:
    """Return for each row the place of the first one that is equal to it."""
    order = np.lexsort(rows[::-1])  # stable: the first of equal rows stays the first
    ordered = rows[:, order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    found = np.empty(len(order), np.int64)
    found[order] = order[is_first][np.cumsum(is_first) - 1]
    return found


# --- the placement `driver` -------------------------------------------------------------------


def arrived(parts: Sequence[Checked]) -> ArrivedKeys | None:
    """Return the checked rows of a source, in order, as one; None if there are none."""
    filled = [part for part in parts if len(part.rows)]
    if not filled:
        return None
    tables = [part.rows.table for part in filled if isinstance(part.rows, CheckedTable)]
    rows: Given
    if len(tables) == len(filled):
        rows = CheckedTable(pa.concat_tables(tables))
    else:
        rows = CheckedRows(row for part in filled for row in part.rows)
    signs = [
        np.ones(len(part.rows), np.bool_) if part.inserted is None else part.inserted
        for part in filled
    ]
    at = [part.at for part in filled if part.at is not None]
    return ArrivedKeys(rows, np.concatenate(signs), np.concatenate(at) if at else None)


def settle(
    changes: EpochChanges,
    upserts: Sequence[Upsert],
    program: Program,
    engine: KernelEngine | None,
) -> list[str]:
    """Turn the upserts of an epoch into inserted and deleted rows, given the state.

    Returns the names of the relations of sequences that change.
    """
    more = []
    for upsert in upserts:
        came = changes.upserts.pop(upsert.relation, None)
        if came is None:
            continue
        codec = Codec(program.records) if engine is None else engine.state.codec
        relation = program.relations[upsert.relation]
        types = [column.type for column in relation.columns]
        keys = key_ordinals(came.rows, upsert, types, codec)
        found = newest(keys, came.inserted, came.at)
        done = replace_in(engine, upsert, found, [upsert.replaced])
        new = _taken(came.rows, done.newest.places[~done.newest.deletes])
        old = done.rows.get(upsert.replaced)
        gone: Given = CheckedRows()
        if old is not None and old.shape[1]:
            kept = _encoded(new, types, codec)
            gone = _decoded(other_rows(old, kept), relation, codec, new)
        changes.inserted[upsert.relation], changes.deleted[upsert.relation] = new, gone
        if done.sequences is not None:
            hidden = program.relations[upsert.sequence]
            sides = [_decoded(rows, hidden, codec, CheckedTable) for rows in done.sequences]
            changes.inserted[upsert.sequence], changes.deleted[upsert.sequence] = sides
            more.append(upsert.sequence)
    return more


def _taken(rows: Given, places: Array) -> Given:
    if isinstance(rows, CheckedTable):
        return CheckedTable(rows.table.take(pa.array(places)))
    return CheckedRows(rows[i] for i in places.tolist())


def _encoded(rows: Given, types: Sequence[Type], codec: Codec) -> Array:
    if isinstance(rows, CheckedTable):
        return ordinals_of(rows, types, codec)
    return codec.encode_rows(rows, types)


def _decoded(ordinals: Array, relation: Relation, codec: Codec, like: object) -> Given:
    """Return rows of ordinals as values: in columns if the new rows are."""
    if isinstance(like, CheckedRows):
        return CheckedRows(codec.decode_rows(ordinals, [c.type for c in relation.columns]))
    return CheckedTable(
        pa.table(
            {
                column.name: arrow_column(ordinals[i], column.type, codec)
                for i, column in enumerate(relation.columns)
            }
        )
    )
