"""Check the rows of a source: accept those that fit the declaration, quarantine the others.

    accepted + quarantined = received

A row of the source counts once, also if its envelope makes two changes. A row is accepted if all of
its values that are used fit their columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelog.errors import DataError
from tidelog.io.columns import CheckedTable, is_columnar
from tidelog.io.conversion import ConversionOptions, convert
from tidelog.io.tabular import CheckedRows, Records
from tidelog.logic.program import Relation
from tidelog.spark.envelopes import SIGNS, Shape, missing_columns
from tidelog.spark.ordering import SourceFile
from tidelog.spark.typed_json import in_texts, with_texts
from tidelog.values.scalars import shown
from tidelog.values.types import DATE, NUMBER, TIMESTAMP, Kind, Type

if TYPE_CHECKING:
    from tidelog.spark.failing_rows import FailingRows

_DEBEZIUM = {"c": (False, True), "r": (False, True), "u": (True, True), "d": (True, False)}
"""Whether each operation needs the row before and the row after."""


@dataclass(frozen=True)
class BadRow:
    """A row for the quarantine."""

    reason: str
    row: Any
    """The row as received: its values by column, or its text."""
    file: str = ""


@dataclass
class Checked:
    """The result of checking a part of a source."""

    received: int = 0
    rows: CheckedTable | CheckedRows = field(default_factory=CheckedRows)
    """Accepted rows, in the order of the source; in columns if all columns are scalars."""
    inserted: NDArray[np.bool_] | None = None
    """Whether each of them is inserted (else deleted); None if all are inserted."""
    bad: list[BadRow] = field(default_factory=list)
    places: NDArray[np.int64] | None = None
    """From which row of the source each of them comes; None if all were accepted."""
    at: NDArray[np.int64] | None = None
    """The sequence of each accepted row, in a source of upserts that has one."""


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
_SEQUENCES = ("byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz")


def check_schema(
    found: Mapping[str, str], shape: Shape, mode: str, relation: Relation, time_unit: str = ""
) -> str:
    """Return why a frame cannot be read for a relation; empty if it can.

    `found` has Spark's type name of each column. Text is accepted for every type: it is parsed, and
    rows with invalid text are quarantined.
    """
    missing = missing_columns(shape, mode, list(found))
    if missing or mode == "debezium":
        return missing
    if shape.sequence and (problem := _sequence_problem(shape.sequence, found[shape.sequence])):
        return problem
    for name, column in zip(shape.columns, relation.columns, strict=True):
        if not _fits(found[name], column.type, time_unit):
            return (
                f"column `{name}` is of type {found[name]}, which cannot be {column.declared}"
                f" in `{relation}`"
            )
    return ""


def _sequence_problem(name: str, spark_type: str) -> str:
    """Return why a column cannot be a sequence; empty if it can. Text is parsed."""
    base = spark_type.partition("(")[0]
    if base in ("string", "varchar", "char", "void", "null", *_SEQUENCES):
        return ""
    return (
        f"the sequence `{name}` is of type {spark_type}; it must be a whole number, a date or a"
        " timestamp"
    )


def _fits(spark_type: str, type_: Type, time_unit: str) -> bool:
    base = spark_type.partition("(")[0]
    if base in ("string", "varchar", "char", "void", "null"):
        return True
    if time_unit and type_.kind in (Kind.DATE, Kind.TIMESTAMP) and base in _NUMBERED_TIMES:
        return True
    return base in _FITTING[type_.kind]


def arrow_type_name(type_: pa.DataType) -> str:
    """Return Spark's name of an Arrow type, as precisely as `check_schema` needs it."""
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
    """Return the error for a source whose first schema does not fit."""
    return DataError(
        f"source `{source}`: {problem}"
        + (f"\n  in: {where}" if where else "")
        + "\n  help: columns are matched by name; `columns` of the source maps other names"
    )


# --- rows -------------------------------------------------------------------------------------


class Checker:
    """Checks the rows of one source, in the shape of `envelopes.encode`."""

    def __init__(
        self,
        relation: Relation,
        records: Records,
        mode: str,
        shape: Shape,
        conversion: ConversionOptions,
    ) -> None:
        self._relation, self._records = relation, records
        self._mode, self._shape, self._conversion = mode, shape, conversion
        self._is_columnar = is_columnar(relation)
        self._names: Mapping[int, SourceFile] = {}

    def check(
        self,
        table: pa.Table,
        files: Mapping[int, SourceFile] | None = None,
        drift: str = "",
        failing: FailingRows | None = None,
    ) -> Checked:
        """Check rows. `files` has the files by number; with `drift` all rows are bad.

        Rows that insert one of those in `failing` are bad, too.
        """
        if "again" in table.column_names:
            table = with_texts(table, self._shape)
        checked = self._check(table, files, drift, {})
        if failing is not None and len(failing):
            reasons = failing.places(self._relation.name, checked)
            if reasons:
                return self._check(table, files, drift, reasons)
        return checked

    def _check(
        self,
        table: pa.Table,
        files: Mapping[int, SourceFile] | None,
        drift: str,
        known: Mapping[int, str],
    ) -> Checked:
        """Check rows, of which some are known to be bad."""
        n = table.num_rows
        self._names = files or {}
        if drift:
            texts, names = table["bad"].to_pylist(), self._files(table)
            bad = [BadRow(drift, _parsed(t), f) for t, f in zip(texts, names, strict=True)]
            return Checked(n, bad=bad)
        reasons: dict[int, str] = {}
        if "bad" in table.column_names and table["bad"].null_count < n:
            broken = pc.indices_nonzero(table["bad"].is_valid()).to_pylist()
            reasons = dict.fromkeys(broken, "the row cannot be parsed")
        reasons |= known
        if self._mode == "debezium":
            return self._debezium(table, reasons)
        if self._shape.keys:
            return self._upserts(table, reasons)
        rows = self._rows(table, "new", reasons, None)
        inserted = self._signs(table["op"], reasons) if self._shape.op else None
        bad = self._quarantined(table, reasons)
        if not reasons:
            return Checked(n, self._finished(rows), inserted, bad)
        good = _others(n, reasons)
        signs = None if inserted is None else inserted[good]
        return Checked(n, self._finished(_taken(rows, good)), signs, bad, good)

    def _upserts(self, table: pa.Table, reasons: dict[int, str]) -> Checked:
        """Check rows by key. Of a row that deletes its key, only the key is needed."""
        n = table.num_rows
        inserted = np.ones(n, np.bool_)
        if "deletes" in table.column_names:
            inserted = ~_bools(table["deletes"])
        rows = self._rows(table, "new", reasons, inserted, np.ones(n, np.bool_))
        at = self._sequence(table["at"], reasons) if self._shape.sequence else None
        good = _others(n, reasons)
        bad = self._quarantined(table, reasons)
        accepted = self._finished(_taken(rows, good))
        return Checked(n, accepted, inserted[good], bad, good, None if at is None else at[good])

    def _sequence(self, column: pa.ChunkedArray, reasons: dict[int, str]) -> NDArray[np.int64]:
        """Return the sequences as numbers in the same order: days, microseconds or themselves."""
        array = _one_array(column)
        type_ = NUMBER
        if pa.types.is_date(array.type):
            type_ = DATE
        elif pa.types.is_timestamp(array.type):
            type_ = TIMESTAMP
        elif not pa.types.is_integer(array.type):
            type_ = self._shape.sequence_type
        part = convert(array, type_, self._records, self._conversion)
        for place, reason in part.reasons.items():
            reasons.setdefault(place, f"sequence `{self._shape.sequence}`: {reason}")
        values = part.column
        assert isinstance(values, pa.Array)
        if type_ is DATE:
            values = values.view(pa.int32())
        numbers = values.view(pa.int64()) if type_ is TIMESTAMP else values.cast(pa.int64())
        return np.asarray(numbers.fill_null(0)).astype(np.int64)

    def _debezium(self, table: pa.Table, reasons: dict[int, str]) -> Checked:
        n = table.num_rows
        is_keyed = bool(self._shape.keys)
        ops, texts = _encoded(table["op"])
        needs = [_DEBEZIUM.get(text or "") for text in texts]
        no_old, no_new = (_bools(table[name]) for name in ("no_old", "no_new"))
        old_needed = np.array([need is not None and need[0] for need in needs], np.bool_)[ops]
        new_needed = np.array([need is not None and need[1] for need in needs], np.bool_)[ops]
        unknown = np.array([need is None for need in needs], np.bool_)[ops]
        for i in np.flatnonzero(unknown).tolist():
            reasons.setdefault(i, f"{_quoted(texts[ops[i]])} is not an operation: c, r, u or d")
        is_update = old_needed & new_needed
        if is_keyed:
            old_needed &= ~is_update  # the row before is found by its key
        for i in np.flatnonzero(old_needed & no_old).tolist():
            why = "it has no key" if is_keyed else "the table must log whole rows"
            reasons.setdefault(i, f"operation {texts[ops[i]]} without `before`: {why}")
        for i in np.flatnonzero(new_needed & no_new).tolist():
            reasons.setdefault(i, f"operation {texts[ops[i]]} without `after`")
        if is_keyed:
            # An update that says which key the row had before may move it to another one.
            unknown_keys: dict[int, str] = {}
            none = np.zeros(n, np.bool_)
            old = self._rows(table, "old", unknown_keys, none, old_needed | (is_update & ~no_old))
            for i, reason in unknown_keys.items():
                if old_needed[i]:
                    reasons.setdefault(i, reason)
            old_needed |= is_update & ~no_old
            old_needed[list(unknown_keys)] = False
        else:
            old = self._rows(table, "old", reasons, old_needed)
        new = self._rows(table, "new", reasons, new_needed)
        # Of each event first the deleted row, then the inserted one, if it has them.
        wanted = np.stack([old_needed, new_needed], axis=1)
        wanted[list(reasons)] = False
        places = np.stack([np.arange(n), np.arange(n, 2 * n)], axis=1)[wanted]
        inserted = np.broadcast_to([False, True], (n, 2))[wanted]
        both = pa.concat_tables([old, new]) if isinstance(old, pa.Table) else [*old, *new]
        accepted = self._finished(_taken(both, places))
        bad = self._quarantined(table, reasons)
        return Checked(n, accepted, inserted, bad, places % max(1, n))

    def _rows(
        self,
        table: pa.Table,
        side: str,
        reasons: dict[int, str],
        needed: NDArray[np.bool_] | None,
        key_needed: NDArray[np.bool_] | None = None,
    ) -> Any:
        """Return the rows, and add the reasons of those rows that are needed and do not fit.

        Of rows in `key_needed`, the key is needed. The result is a table if all columns are
        scalars, else a list.
        """
        if not self._relation.columns:
            return [()] * table.num_rows
        columns = []
        for i, column in enumerate(self._relation.columns):
            part = convert(
                _one_array(table[f"{side}{i}"]), column.type, self._records, self._conversion
            )
            own = needed
            if needed is not None and key_needed is not None and i in self._shape.keys:
                own = needed | key_needed
            for place, reason in part.reasons.items():
                if own is None or own[place]:
                    reasons.setdefault(place, f"column `{self._shape.columns[i]}`: {reason}")
            columns.append(part)
        if self._is_columnar:
            names = [column.name for column in self._relation.columns]
            return pa.Table.from_arrays([part.column for part in columns], names)
        values = [part.values for part in columns]
        if key_needed is not None:
            for i, column in enumerate(self._relation.columns):
                if column.type.kind is Kind.SET:  # rows that delete have none
                    values[i] = [frozenset() if v is None else v for v in values[i]]
        return list(zip(*values, strict=True))

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
        if "again" in part.column_names:
            part = in_texts(part)
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
        if "at" in part.column_names and self._shape.sequence not in found:
            found[self._shape.sequence] = _shown_value(part["at"][i])
        return found

    def _files(self, table: pa.Table) -> list[str]:
        if "place" in table.column_names:
            return [place or "" for place in table["place"].to_pylist()]
        if "file" not in table.column_names:
            return [""] * table.num_rows
        numbers = table["file"].to_pylist()
        return [self._names[n].shown if n in self._names else "" for n in numbers]


def _encoded(column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str | None]]:
    """Return the distinct texts of a column, and the index of each row's text."""
    encoded = _one_array(column).dictionary_encode(null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64), encoded.dictionary.to_pylist()


def _bools(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    return np.asarray(_one_array(column).cast(pa.uint8())).astype(np.bool_)


def _others(n: int, places: Mapping[int, object]) -> NDArray[np.int64]:
    """Return the numbers below n that are not given."""
    kept = np.ones(n, np.bool_)
    kept[list(places)] = False
    return np.flatnonzero(kept)


def _taken(rows: Any, places: NDArray[np.int64]) -> Any:
    """Return some rows of a table or a list."""
    if isinstance(rows, pa.Table):
        return rows.take(pa.array(places))
    return [rows[i] for i in places.tolist()]


def _one_array(chunks: pa.ChunkedArray) -> pa.Array:
    whole = chunks.combine_chunks()
    if isinstance(whole, pa.ChunkedArray):  # empty, or too large for one array
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
    except (OverflowError, ValueError):  # a date or time outside Python's range
        return f"{value.type} {value.value}"


def _quoted(op: object) -> str:
    return "nothing" if op is None else shown(str(op))
