"""The rows that a cell has received in an epoch, as inserted and deleted rows of its variants.

Rows of sources, and net changes from earlier stages, become columns of ordinals. A snapshot is
compared with the stored rows, and the rows that upserts replace are looked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.last_write_wins import last_write_wins
from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.sharding.key_relations import Upsert
from tidelog.sharding.sharding import Variant
from tidelog.spark.shard_exchange import Arrived
from tidelog.spark.shard_routing import AT, KEY, SIGN, SourceCheck, in_order_of_keys
from tidelog.spark.upserting import key_ordinals, newest, other_rows, replace_in

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelog.engine.kernel import KernelEngine
    from tidelog.logic.program import Program
    from tidelog.sharding.router import Router
    from tidelog.store.codec import Codec

Array = NDArray[np.int64]
Pieces = list[tuple[Array, NDArray[np.bool_] | None]]


def encoded_changes(
    came: Arrived,
    checks: Mapping[int, SourceCheck],
    exchanged: Mapping[str, Sequence[pa.Table]],
    program: Program,
    router: Router,
    number: int,
    codec: Codec,
    engine: KernelEngine | None,
) -> dict[str, tuple[Array, Array]]:
    """Return the inserted and deleted rows of each variant, as columns of ordinals.

    `exchanged` has the net changes that earlier stages have sent. `engine` has the state before the
    epoch; None if there is none yet.
    """
    import pyarrow as pa

    arrived = [
        (checks[source].relation, in_order_of_keys(came.tables[source]))
        for source in sorted(came.tables.keys() & checks.keys())
        if not checks[source].shape.keys
    ]
    arrived += [(name, pa.concat_tables(tables)) for name, tables in exchanged.items()]
    pieces = _pieces(arrived, program, router, number, codec)
    encoded = {name: last_write_wins(found) for name, found in pieces.items()}
    snapshots = {
        check.relation for check in checks.values() if check.mode == "snapshot" and not check.drift
    }
    sharding = router.sharding
    for relation in snapshots if engine is not None else ():  # the only source of its relation
        assert engine is not None
        for variant in sharding.variants_of(relation):
            name = sharding.name_of(variant)
            given = engine.catalog.given[name]
            before = given.ordinals(given.rows())
            now = encoded[name][0] if name in encoded else before[:, :0]
            encoded[name] = _difference(before, now)
    tables = {n: came.tables[n] for n in came.tables if n in checks and checks[n].shape.keys}
    upserts = _Upserts(program, router, number, codec, engine)
    return encoded | upserts.changes(tables, checks)


class _Upserts:
    """Does upserts in a shard, which has all of them, but only its own rows of the relation."""

    def __init__(
        self,
        program: Program,
        router: Router,
        number: int,
        codec: Codec,
        engine: KernelEngine | None,
    ) -> None:
        self._program, self._router, self._number = program, router, number
        self._codec, self._engine = codec, engine

    def changes(
        self, tables: Mapping[int, Sequence[pa.Table]], checks: Mapping[int, SourceCheck]
    ) -> dict[str, tuple[Array, Array]]:
        """Return the inserted and deleted rows of each relation; `tables` has the sources' rows."""
        import pyarrow as pa

        by_relation: dict[str, list[pa.Table]] = {}
        for source in sorted(tables):
            ordered = in_order_of_keys(tables[source])
            by_relation.setdefault(checks[source].relation, []).append(ordered)
        shapes = {check.relation: check.shape for check in checks.values()}
        found: dict[str, tuple[Array, Array]] = {}
        for name, parts in by_relation.items():
            shape = shapes[name]
            upsert = Upsert(name, shape.keys, bool(shape.sequence))
            found |= self._changes(upsert, pa.concat_tables(parts))
        return found

    def _changes(self, upsert: Upsert, table: pa.Table) -> dict[str, tuple[Array, Array]]:
        import pyarrow as pa

        sharding = self._router.sharding
        types = [column.type for column in self._program.relations[upsert.relation].columns]
        keys = key_ordinals(CheckedTable(table), upsert, types, self._codec)
        at = np.asarray(table[AT]) if AT in table.column_names else None
        found = newest(keys, _signs(table), at)
        asked = {
            variant: sharding.name_of(Variant(upsert.replaced, variant.partitioning))
            for variant in sharding.variants_of(upsert.relation)
        }
        done = replace_in(self._engine, upsert, found, list(asked.values()))
        rows = _own_columns(table).take(pa.array(done.newest.places[~done.newest.deletes]))
        ordinals = _ordinals(rows, self._program, upsert.relation, self._codec)
        changes = {}
        for variant, name in asked.items():
            new = ordinals[:, self._router.mask(variant, rows)(self._number)]
            old = done.rows.get(name, new[:, :0])
            changes[sharding.name_of(variant)] = new, other_rows(old, new)
        if done.sequences is not None:
            changes[upsert.sequence] = done.sequences
        return changes


def _difference(before: Array, now: Array) -> tuple[Array, Array]:
    """Return the rows that are only in `now`, and those that are only in `before`."""
    rows = np.concatenate([before, now], axis=1)
    order = np.lexsort(rows[::-1])
    is_new = (np.arange(rows.shape[1]) >= before.shape[1])[order]
    sorted_rows = rows[:, order]
    first = np.ones(rows.shape[1], np.bool_)
    first[1:] = (sorted_rows[:, 1:] != sorted_rows[:, :-1]).any(axis=0)
    group = np.cumsum(first) - 1
    groups = int(first.sum())
    has_new, has_old = np.zeros(groups, np.bool_), np.zeros(groups, np.bool_)
    has_new[group[is_new]] = True
    has_old[group[~is_new]] = True
    distinct = sorted_rows[:, first]
    return distinct[:, has_new & ~has_old], distinct[:, has_old & ~has_new]


def _pieces(
    arrived: Sequence[tuple[str, pa.Table]],
    program: Program,
    router: Router,
    number: int,
    codec: Codec,
) -> dict[str, Pieces]:
    """Return the rows of each variant, in the order in which they apply."""
    found: dict[str, Pieces] = {}
    for relation, table in arrived:
        signs = _signs(table) if SIGN in table.column_names else None
        rows = _own_columns(table)
        ordinals = _ordinals(rows, program, relation, codec)
        for variant in router.sharding.variants_of(relation):
            mine = router.mask(variant, rows)(number)
            own = ordinals if mine.all() else ordinals[:, mine]
            own_signs = None if signs is None else signs[mine]
            found.setdefault(router.sharding.name_of(variant), []).append((own, own_signs))
    return found


def _own_columns(table: pa.Table) -> pa.Table:
    """Return the columns of the relation."""
    return table.select([n for n in table.column_names if not n.startswith((SIGN, AT, KEY))])


def _signs(table: pa.Table) -> NDArray[np.bool_]:
    import pyarrow as pa

    return np.asarray(table[SIGN].combine_chunks().cast(pa.uint8())).astype(np.bool_)


def _ordinals(rows: pa.Table, program: Program, name: str, codec: Codec) -> Array:
    from tidelog.engine.arrow import ordinals_of
    from tidelog.io.conversion import rows_of

    relation = program.relations[name]
    types = [column.type for column in relation.columns]
    if not types:
        return np.zeros((1, rows.num_rows), np.int64)
    if is_columnar(relation):
        return ordinals_of(CheckedTable(rows), types, codec)
    return codec.encode_rows(list(rows_of(rows, relation, program.records)), types)
