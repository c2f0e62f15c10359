"""Find the rows on which rules fail, in a shard: on_rule_error = "quarantine".

A row can be in several shards, and a rule may fail in one of them only. So a shard does not leave
out the rows that it finds. It writes them to a file and returns its name. The driver does the
epoch again, and the tasks that route rows leave them out for all shards (shard_routing.py):

    job 1    route ──► apply        shard 2: a rule fails; looks for the rows ──► failing/..
    job 2    route without these ──► apply ──► commit

Without a row, a rule may fail on another one. So there may be several rounds, of which each finds
more rows. Nothing is committed before the last one, and a process that dies before begins again.

Of two rows that fail only together, the shuffle does not say which came first. So a shard tries
them in an order of their values, which is the same whenever the epoch is done again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tidelog.engine.protocol import NoObserver
from tidelog.errors import DataError
from tidelog.spark.bisection import RULE_ERRORS, Bisection

if TYPE_CHECKING:
    from tidelog.engine.kernel import KernelEngine
    from tidelog.logic.program import Program
    from tidelog.sharding.router import Router
    from tidelog.spark.failing_rows import FailingRows
    from tidelog.store.codec import Codec

FAILING = "failing"
"""The folder below that of the state."""
ROUNDS = 20
"""How often an epoch is done at most, each time without the rows that were found."""

Array = NDArray[np.int64]
Encoded = Mapping[str, tuple[Array, Array]]


class _ComputedError(Exception):
    """Undoes an epoch that can be computed."""


class _UndoingProbe(NoObserver):
    def computed(self) -> None:
        """End the epoch."""
        raise _ComputedError


def _update_error(engine: KernelEngine, changes: Encoded) -> DataError | None:
    """Compute an update and undo it; return the error of a rule, if there is one."""
    observer, engine.observer = engine.observer, _UndoingProbe()
    try:
        engine.apply_ordinals(changes)
    except _ComputedError:
        return None
    except RULE_ERRORS as error:
        return error
    finally:
        engine.observer = observer
    raise AssertionError("a probe was committed")


def _first_error(program: Program, codec: Codec, changes: Encoded) -> DataError | None:
    """Evaluate the program of a shard on its first rows; return the error of a rule, if any."""
    from tidelog.engine.kernel import KernelEngine

    engine = KernelEngine.empty(program, expects_updates=False, codec=codec)
    try:
        engine.load_ordinals({name: rows for name, (rows, _) in changes.items()})
    except RULE_ERRORS as error:
        return error
    return None


class ShardSearch:
    """Looks for the rows of an epoch on which rules fail, in one shard."""

    def __init__(
        self,
        program: Program,
        router: Router,
        codec: Codec,
        changes: Encoded,
        engine: KernelEngine | None,
        own_program: Program,
    ) -> None:
        """`engine` has the state before the epoch; None if there is none yet."""
        self._program, self._codec = program, codec
        self._engine, self._own_program = engine, own_program
        sharding = router.sharding
        self._relations = {sharding.name_of(v): v.relation for v in sharding.variants}
        self._changes = {
            name: (self._sorted(name, new), old) for name, (new, old) in changes.items()
        }

    def _sorted(self, name: str, rows: Array) -> Array:
        """Return rows in an order of their values, which does not depend on dictionary ids."""
        import pyarrow as pa

        from tidelog.engine.arrow import arrow_column
        from tidelog.sharding.router import hash_arrow
        from tidelog.values.types import Kind

        keys = []
        for column, ordinals in zip(self._columns(name), rows, strict=False):
            if column.type.kind not in (Kind.RECORD, Kind.SET):
                values = pa.chunked_array([arrow_column(ordinals, column.type, self._codec)])
                keys.append(hash_arrow(values, column.type))
        return rows.take(np.lexsort(keys), axis=1) if keys else rows

    def _columns(self, name: str) -> Any:
        return self._program.relations[self._relations.get(name, name)].columns

    def whole(self) -> DataError | None:
        """Compute the whole epoch, and undo it; return the error of a rule, if there is one."""
        return self._error_of(self._changes)

    def _error_of(self, changes: Encoded) -> DataError | None:
        if self._engine is None:
            return _first_error(self._own_program, self._codec, changes)
        return _update_error(self._engine, changes)

    def find(self, error: DataError) -> dict[str, list[tuple[Any, str]]]:
        """Return rows and reasons by relation; raise `error` if it fails without new rows, too."""
        names = [name for name, (new, _) in self._changes.items() if new.shape[1]]
        sizes = [self._changes[name][0].shape[1] for name in names]
        starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)

        def probe(taken: NDArray[np.bool_]) -> DataError | None:
            part = dict(self._changes)
            for name, start, end in zip(names, starts, starts[1:], strict=False):
                new, old = part[name]
                part[name] = np.ascontiguousarray(new[:, taken[start:end]]), old
            return self._error_of(part)

        found: dict[str, list[tuple[Any, str]]] = {}
        for place, reason in Bisection(int(starts[-1]), probe, error).find().items():
            at = int(np.searchsorted(starts, place, side="right")) - 1
            name, own = names[at], place - int(starts[at])
            types = [column.type for column in self._columns(name)]
            row = self._changes[name][0][:, own : own + 1]
            (decoded,) = self._codec.decode_rows(row, types) if types else [()]
            found.setdefault(self._relations[name], []).append((decoded, reason))
        if not found:
            raise error
        return found


def write_failing(
    folder: Path, epoch: int, shard: int, program: Program, found: Mapping[str, Any]
) -> list[tuple[str, str, int]]:
    """Write rows for the tasks that route rows; return relations, files and numbers of rows."""
    from tidelog.io.atomic import write_synced
    from tidelog.io.tabular import CheckedRows
    from tidelog.spark.epoch_changes import table_of
    from tidelog.spark.shard_task import as_bytes

    (folder / FAILING).mkdir(exist_ok=True)
    written = []
    for relation, rows in found.items():
        values = CheckedRows(row for row, _ in rows)
        table = table_of(values, program.relations[relation], program.records)
        reasons = json.dumps([reason for _, reason in rows])
        table = table.replace_schema_metadata({"reasons": reasons})
        name = f"{FAILING}/{epoch:012}-{shard}-{secrets.token_hex(8)}.arrow"
        write_synced(folder / name, as_bytes(table))
        written.append((relation, name, len(rows)))
    return written


def read_failing(folder: str, files: tuple[tuple[str, str], ...], program: Program) -> FailingRows:
    """Return the rows that shards have found, of files by relation."""
    import pyarrow as pa

    from tidelog.io.conversion import rows_of
    from tidelog.spark.failing_rows import FailingRows

    found = FailingRows()
    for relation, name in files:
        table = pa.ipc.open_stream((Path(folder) / name).read_bytes()).read_all()
        reasons: Iterable[str] = json.loads(table.schema.metadata[b"reasons"])
        rows = rows_of(table, program.relations[relation], program.records)
        found.add(relation, zip(rows, reasons, strict=True))
    return found
