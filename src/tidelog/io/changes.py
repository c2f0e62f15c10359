"""Changes of relations: the `.changes` files of epochs, read and written.

An epoch is a folder with a file `<relation>.changes` for each relation that changes. A line is `+`
or `-`, a tab, and the row, tab-separated; for a relation without columns the sign alone.

In `rules.changes` the sign is followed by statements of the program. Lines without a sign continue
those before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidelog.errors import FactsError, UsageError
from tidelog.io.lines import read_bytes
from tidelog.io.parameters import FileFormat
from tidelog.io.rows import Column, column, read_rows
from tidelog.io.text import columns_text
from tidelog.logic.program import Relation
from tidelog.logic.rule_changes import RuleChange
from tidelog.source import SourceText
from tidelog.values.order import Records, sort_columns
from tidelog.values.scalars import shown
from tidelog.values.types import BOOL, SYMBOL, Field, Row

RULES = "rules"
"""The name of the file with changes of rules, unless a relation is called so."""
_SUFFIXES = (".changes", ".changes.gz")
_SIGNS = {"+": True, "-": False}
_SIGN = Field("sign", BOOL, "bool")
_WRITTEN_SIGN = Field("sign", SYMBOL, "symbol")
_NO_WAY_OUT = "a changes file cannot contain symbols with tabs or line ends; replace them in a rule"


def list_epochs(folder: Path | str) -> list[Path]:
    """Return the sub-folders of `folder`, one for each epoch, sorted by name."""
    folder = Path(folder)
    if not folder.is_dir():
        reason = "is not a folder" if folder.exists() else "does not exist"
        raise UsageError(
            f"the folder of epochs `{folder}` {reason}\n"
            "  help: each epoch is a sub-folder of it, with files `<relation>.changes`"
        )
    epochs = (path for path in folder.iterdir() if path.is_dir() and path.name[0] != ".")
    return sorted(epochs, key=lambda path: path.name)


def epoch_files(folder: Path | str) -> dict[str, Path]:
    """Return the changes files of an epoch by relation, sorted by name.

    Raises UsageError for other files, except hidden ones.
    """
    found: dict[str, Path] = {}
    strangers: list[str] = []
    for path in sorted(Path(folder).iterdir()):
        if path.name.startswith("."):
            continue
        suffix = next((end for end in _SUFFIXES if path.name.endswith(end)), None)
        if suffix is None or path.is_dir():
            strangers.append(path.name)
            continue
        relation = path.name.removesuffix(suffix)
        if relation in found:
            raise UsageError(
                f"epoch `{folder}` has both `{found[relation].name}` and `{path.name}`"
            )
        found[relation] = path
    if strangers:
        raise UsageError(
            f"epoch `{folder}` has files that are not changes: {', '.join(strangers)}\n"
            "  help: changes are in `<relation>.changes` or `<relation>.changes.gz`"
        )
    return found


def read_changes(path: Path | str, relation: Relation, records: Records) -> list[tuple[bool, Row]]:
    """Return the changes of a file in order: True for an inserted row, False for a deleted one.

    Raises FactsError with line and column for what does not fit the relation.
    """
    data = read_bytes(Path(path), "changes")
    if relation.arity == 0:
        # The line is the field: a delimiter that no line contains.
        format = FileFormat(delimiter="\n")
        unit = Column(BOOL, _parse_signed_unit)
        found = read_rows(data, str(path), [unit], format, f"`+` or `-` of {relation}")
        return [(inserted, ()) for (inserted,) in found]
    columns = [Column(BOOL, _parse_sign), *(column(c, records) for c in relation.columns)]
    expected = f"`+` or `-`, then {relation}"
    return [
        (row[0], row[1:]) for row in read_rows(data, str(path), columns, FileFormat(), expected)
    ]


def read_rule_changes(path: Path | str) -> RuleChange:
    """Return the statements that a file adds to the program and drops from it.

    Their positions are those in the file.
    """
    data = read_bytes(Path(path), "changes")
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise UsageError(f"`{path}` is not UTF-8 text") from None
    parts: dict[str, list[str]] = {"+": [], "-": []}
    sign = ""
    for number, line in enumerate(lines, 1):
        begins = line[:1] in parts
        if begins:
            sign = line[0]
        elif not sign and line.strip():
            reason = f"expected `+` or `-`, found {shown(line.split()[0])}"
            raise FactsError(str(path), number, 1, reason, "a sign begins each change")
        statement = f" {line[1:]}" if begins else line
        for other, text in parts.items():
            text.append(statement if other == sign else "")
    sources = {
        sign: (SourceText(str(path), "\n".join(text)),) if any(map(str.strip, text)) else ()
        for sign, text in parts.items()
    }
    return RuleChange(sources["+"], sources["-"])


def format_changes(
    inserted: Iterable[Row], deleted: Iterable[Row], relation: Relation, records: Records
) -> str:
    """Return the text of a changes file, sorted by row; of equal rows `-` is before `+`."""
    # The sign is the last column for sorting, so that it only decides between equal rows, and the
    # first one in the file. False, a deletion, sorts before True.
    signed = [(*row, False) for row in deleted] + [(*row, True) for row in inserted]
    *values, signs = sort_columns(signed, (*relation.columns, _SIGN), records)
    values.insert(0, ["+" if sign else "-" for sign in signs])
    columns = (_WRITTEN_SIGN, *relation.columns)
    return columns_text(
        values, columns, records, FileFormat(), name=relation.name, way_out=_NO_WAY_OUT
    )


def _parse_sign(text: str) -> bool:
    try:
        return _SIGNS[text]
    except KeyError:
        raise ValueError(f"expected `+` or `-`, found {shown(text)}") from None


def _parse_signed_unit(text: str) -> bool:
    return _parse_sign(text.removesuffix("\t()"))
