"""Rows that came from a source: those that fit the declaration, and the others, with reasons.

    accepted + quarantined = received

A row of the source counts once, also where an envelope makes two changes of it. A row is accepted
when every value in it that matters fits its column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelog.errors import DataError
from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.io.tabular import CheckedRows, Records
from tidelog.logic.program import Relation
from tidelog.spark.conversion import Reading, convert
from tidelog.spark.envelopes import ORDERED, SIGNS, Shape, missing_columns
from tidelog.values.scalars import shown
from tidelog.values.types import Kind, Type

_DEBEZIUM = {"c": (False, True), "r": (False, True), "u": (True, True), "d": (True, False)}
"""For each operation, whether it needs the row before and the row after."""


@dataclass(frozen=True)
class BadRow:
    """A row for the quarantine."""

    reason: str
    row: Any
    """The row as it came: its values by column, or its text."""
    file: str = ""


@dataclass
class Checked:
    """What a part of a source came to."""

    received: int = 0
    rows: CheckedTable | CheckedRows = field(default_factory=CheckedRows)
    """Accepted rows, in the order in which they are meant; in columns, if all are of scalars."""
    came: NDArray[np.bool_] | None = None
    """For each of them whether it came or went; None where all came."""
    bad: list[BadRow] = field(default_factory=list)


# --- the schema, before the first row ---------------------------------------------------------

_FITTING = {
    Kind.NUMBER: ("byte", "short", "integer", "long", "decimal"),
    Kind.UNSIGNED: ("byte", "short", "integer", "long", "decimal"),
    Kind.FLOAT: ("byte", "short", "integer", "long", "float", "double"),
    Kind.SYMBOL: (),
    Kind.BOOL: ("boolean",),
    Kind.DATE: ("date",),
    Kind.TIMESTAMP: ("timestamp", "timestamp_ntz"),
    Kind.DECIMAL: ("byte", "short", "integer", "long", "decimal"),
    Kind.RECORD: ("struct", "map"),
    Kind.SET: ("array",),
}
_NUMBERED_TIMES = ("integer", "long")


def check_schema(
    found: Mapping[str, str], shape: Shape, mode: str, relation: Relation, time_unit: str = ""
) -> str:
    """Say what keeps a frame from being read for a relation; empty if nothing does.

    `found` has the type name of each column, as Spark calls it. Text is taken for every type: it is
    parsed, and rows with other text go to the quarantine.
    """
    missing = missing_columns(shape, mode, list(found))
    if missing or mode == "debezium":
        return missing
    for name, column in zip(shape.columns, relation.columns, strict=True):
        if not _fits(found[name], column.type, time_unit):
            return (
                f"column `{name}` is of type {found[name]}, which cannot be {column.declared}"
                f" in `{relation}`"
            )
    return ""


def _fits(spark_type: str, type_: Type, time_unit: str) -> bool:
    base = spark_type.partition("(")[0]
    if base in ("string", "varchar", "char", "void", "null"):
        return True
    if time_unit and type_.kind in (Kind.DATE, Kind.TIMESTAMP) and base in _NUMBERED_TIMES:
        return True
    return base in _FITTING[type_.kind]


def arrow_type_name(type_: pa.DataType) -> str:
    """Return what Spark calls an Arrow type, as far as schemas are checked."""
    is_ = pa.types
    if is_.is_string(type_) or is_.is_large_string(type_) or is_.is_string_view(type_):
        return "string"
    for test, name in (
        (is_.is_boolean, "boolean"),
        (is_.is_integer, "long"),
        (is_.is_floating, "double"),
        (is_.is_decimal, "decimal"),
        (is_.is_date, "date"),
        (is_.is_timestamp, "timestamp"),
        (is_.is_struct, "struct"),
        (is_.is_list, "array"),
        (is_.is_large_list, "array"),
        (is_.is_null, "void"),
    ):
        if test(type_):
            return name
    return str(type_)


def schema_error(source: str, problem: str, where: str) -> DataError:
    """Return the error for a source that does not fit from the beginning."""
    return DataError(
        f"source `{source}`: {problem}"
        + (f"\n  in: {where}" if where else "")
        + "\n  help: columns are found by name; `columns` of the source gives other names"
    )


# --- rows -------------------------------------------------------------------------------------


class Checker:
    """Takes the rows of one source in the shape of `envelopes.encode`."""

    def __init__(
        self, relation: Relation, records: Records, mode: str, shape: Shape, reading: Reading
    ) -> None:
        self._relation, self._records = relation, records
        self._mode, self._shape, self._reading = mode, shape, reading
        self._is_columnar = is_columnar(relation)

    def check(self, table: pa.Table, ranks: Mapping[str, int], drift: str) -> Checked:
        """Return what the rows come to. `ranks` orders files; with `drift` all rows are bad."""
        n = table.num_rows
        if drift:
            texts, files = table["bad"].to_pylist(), self._files(table)
            bad = [BadRow(drift, _parsed(t), f) for t, f in zip(texts, files, strict=True)]
            return Checked(n, bad=bad)
        if self._mode in ORDERED and n:
            table = _in_order(table, ranks)
        reasons: dict[int, str] = {}
        if "bad" in table.column_names and table["bad"].null_count < n:
            broken = pc.indices_nonzero(table["bad"].is_valid()).to_pylist()
            reasons = dict.fromkeys(broken, "the row cannot be taken apart")
        if self._mode == "debezium":
            return self._debezium(table, reasons)
        rows = self._rows(table, "new", reasons, None)
        came = self._signs(table["op"], reasons) if self._shape.op else None
        bad = self._quarantined(table, reasons)
        if not reasons:
            return Checked(n, self._finished(rows), came, bad)
        good = _others(n, reasons)
        return Checked(
            n, self._finished(_taken(rows, good)), None if came is None else came[good], bad
        )

    def _debezium(self, table: pa.Table, reasons: dict[int, str]) -> Checked:
        n = table.num_rows
        ops, texts = _encoded(table["op"])
        needs = [_DEBEZIUM.get(text or "") for text in texts]
        no_old, no_new = (_bools(table[name]) for name in ("no_old", "no_new"))
        old_needed = np.array([need is not None and need[0] for need in needs], np.bool_)[ops]
        new_needed = np.array([need is not None and need[1] for need in needs], np.bool_)[ops]
        unknown = np.array([need is None for need in needs], np.bool_)[ops]
        for i in np.flatnonzero(unknown).tolist():
            reasons.setdefault(i, f"{_quoted(texts[ops[i]])} is not an operation: c, r, u or d")
        for i in np.flatnonzero(old_needed & no_old).tolist():
            reasons.setdefault(
                i, f"operation {texts[ops[i]]} without `before`: the table must log whole rows"
            )
        for i in np.flatnonzero(new_needed & no_new).tolist():
            reasons.setdefault(i, f"operation {texts[ops[i]]} without `after`")
        old = self._rows(table, "old", reasons, old_needed)
        new = self._rows(table, "new", reasons, new_needed)
        # Of each event what it takes back, and then what it brings, as far as it does.
        wanted = np.stack([old_needed, new_needed], axis=1)
        wanted[list(reasons)] = False
        places = np.stack([np.arange(n), np.arange(n, 2 * n)], axis=1)[wanted]
        came = np.broadcast_to([False, True], (n, 2))[wanted]
        both = pa.concat_tables([old, new]) if isinstance(old, pa.Table) else [*old, *new]
        return Checked(
            n, self._finished(_taken(both, places)), came, self._quarantined(table, reasons)
        )

    def _rows(
        self,
        table: pa.Table,
        side: str,
        reasons: dict[int, str],
        needed: NDArray[np.bool_] | None,
    ) -> Any:
        """Return the rows, and add the reasons of those that do not fit, if they are needed.

        They are a table if all columns are of scalars, and else a list.
        """
        if not self._relation.columns:
            return [()] * table.num_rows
        columns = []
        for i, column in enumerate(self._relation.columns):
            part = convert(
                _one_array(table[f"{side}{i}"]), column.type, self._records, self._reading
            )
            for place, reason in part.reasons.items():
                if needed is None or needed[place]:
                    reasons.setdefault(place, f"column `{self._shape.columns[i]}`: {reason}")
            columns.append(part)
        if self._is_columnar:
            names = [column.name for column in self._relation.columns]
            return pa.Table.from_arrays([part.column for part in columns], names)
        return list(zip(*(part.values for part in columns), strict=True))

    def _finished(self, rows: Any) -> CheckedTable | CheckedRows:
        return CheckedTable(rows) if self._is_columnar else CheckedRows(rows)

    def _signs(self, column: pa.ChunkedArray, reasons: dict[int, str]) -> NDArray[np.bool_]:
        ops, texts = _encoded(column)
        known = [None if text is None else SIGNS.get(text.strip().lower()) for text in texts]
        for i in np.flatnonzero(np.array([sign is None for sign in known], np.bool_)[ops]).tolist():
            reasons.setdefault(
                i, f"{_quoted(texts[ops[i]])} in column `{self._shape.op}` is neither + nor -"
            )
        return np.array([bool(sign) for sign in known], np.bool_)[ops]

    def _quarantined(self, table: pa.Table, reasons: Mapping[int, str]) -> list[BadRow]:
        if not reasons:
            return []
        places = sorted(reasons)
        part = table.take(pa.array(places, pa.int64()))
        texts = part["bad"].to_pylist() if "bad" in part.column_names else [None] * len(places)
        shown_rows = []
        for i, text in enumerate(texts):
            shown_rows.append(text if text is not None else self._named(part, i))
        return [
            BadRow(reasons[place], row, file)
            for place, row, file in zip(places, shown_rows, self._files(part), strict=True)
        ]

    def _named(self, part: pa.Table, i: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "op" in part.column_names:
            found[self._shape.op or "op"] = part["op"][i].as_py()
        sides = {"old": "before", "new": "after"} if self._mode == "debezium" else {"new": ""}
        for side, name in sides.items():
            named = {
                column: _shown_value(part[f"{side}{k}"][i])
                for k, column in enumerate(self._shape.columns)
            }
            found |= {name: named} if name else named
        return found

    def _files(self, table: pa.Table) -> list[str]:
        if "file" not in table.column_names:
            return [""] * table.num_rows
        return [unquote(name or "") for name in table["file"].to_pylist()]


def _in_order(table: pa.Table, ranks: Mapping[str, int]) -> pa.Table:
    """Return the rows in the order of their files, and in them as they stand.

    Spark cuts files into ranges, and numbers rows within what one task reads; so the order of rows
    is (rank of the file, start of the range, number). What was not read by tasks is as it is.
    """
    if "start" not in table.column_names:
        return table  # in order already
    files = table["file"].combine_chunks()
    encoded = files.dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    order = [ranks.get(unquote(name), len(ranks)) for name in encoded.dictionary.to_pylist()]
    rank = np.array(order, np.int64)[np.asarray(encoded.indices)]
    keys = (np.asarray(table["id"]), np.asarray(table["start"]), rank)
    after = np.ones(max(0, len(rank) - 1), np.bool_)
    for key in keys:  # from the last one that decides to the first
        after = (key[1:] > key[:-1]) | ((key[1:] == key[:-1]) & after)
    return table if after.all() else table.take(pa.array(np.lexsort(keys)))


def _encoded(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str | None]]:
    """Return the different texts of a column, and for each row which one it has."""
    encoded = _one_array(column).dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64), encoded.dictionary.to_pylist()


def _bools(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(_one_array(column).cast(pa.uint8())).astype(np.bool_)


def _others(n: int, places: Mapping[int, object]) -> NDArray[np.int64]:
    """Return the places from 0 to n that are not among those given."""
    kept = np.ones(n, np.bool_)
    kept[list(places)] = False
    return np.flatnonzero(kept)


def _taken(rows: Any, places: NDArray[np.int64]) -> Any:
    """Return some of the rows, which are a table or a list."""
    if isinstance(rows, pa.Table):
        return rows.take(pa.array(places))
    return [rows[i] for i in places.tolist()]


def _one_array(chunks: pa.ChunkedArray) -> pa.Array:
    whole = chunks.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # nothing, or too much for one array
        whole = pa.concat_arrays(whole.chunks) if whole.chunks else pa.array([], chunks.type)
    return whole


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _shown_value(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):  # a day or a moment that Python does not have
        return f"{value.type} {value.value}"


def _quoted(op: object) -> str:
    return "nothing" if op is None else shown(str(op))
