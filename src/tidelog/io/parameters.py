"""The parameters of `.input` and `.output`, checked.

The parameters are Soufflé's. Unknown ones are errors: with a misspelt `delimeter` that is silently
ignored, wrong rows would be read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidelog.errors import Diagnostic, ProgramError, UsageError, did_you_mean
from tidelog.logic.program import DirectiveKind, Program, Relation

# Soufflé sets these for every file. Programs may repeat them; the command line overrides them.
_IGNORED = ("name", "fact-dir", "output-dir", "attributeNames", "operation")
_SHARED = ("IO", "filename", "delimiter", "headers", "rfc4180", "compress", *_IGNORED)
_INPUT = (*_SHARED, "columns")


@dataclass(frozen=True)
class FileFormat:
    """The layout of the rows of a file."""

    delimiter: str = "\t"
    rfc4180: bool = False
    headers: bool = False
    compress: bool = False
    columns: tuple[int, ...] | None = None
    """The file's column for each column of the relation, or None for the first ones in order."""
    stdout: bool = False

    @property
    def brackets_protect(self) -> bool:
        """Return whether a delimiter inside a record or a set is part of the field."""
        return "," in self.delimiter and not self.rfc4180


def input_format(relation: Relation, parameters: Mapping[str, str]) -> FileFormat:
    """Return the layout that the parameters of an `.input` describe."""
    where = f".input {relation.name}"
    _check_device(where, parameters, ("file",))
    return _format(where, parameters, _INPUT, relation.arity)


def output_format(relation: Relation, parameters: Mapping[str, str]) -> FileFormat:
    """Return the layout that the parameters of an `.output` describe."""
    where = f".output {relation.name}"
    _check_device(where, parameters, ("file", "stdout"))
    return _format(where, parameters, _SHARED, relation.arity)


def check_parameters(program: Program) -> None:
    """Raise ProgramError for directives with invalid parameters.

    Reading and writing check them, too; this finds errors before anything is evaluated.
    """
    found = []
    for directive in program.directives:
        of = input_format if directive.kind is DirectiveKind.INPUT else output_format
        try:
            of(program.relations[directive.relation], directive.parameters)
        except UsageError as error:
            message, _, hint = str(error).partition("\n  help: ")
            found.append(Diagnostic("bad-parameter", message, directive.span, hint or None))
    if found:
        raise ProgramError(found)


def _check_device(where: str, parameters: Mapping[str, str], known: tuple[str, ...]) -> None:
    device = parameters.get("IO", "file")
    if device not in known:
        ways = " or ".join(f"IO={name}" for name in known)
        raise UsageError(f"{where}: IO={device} is not supported\n  help: use {ways}")


def _format(
    where: str, parameters: Mapping[str, str], known: tuple[str, ...], arity: int
) -> FileFormat:
    for name in parameters:
        if name not in known:
            hint = did_you_mean(name, known) or f"the parameters are {', '.join(known)}"
            raise UsageError(f"{where}: unknown parameter `{name}`\n  help: {hint}")
    rfc4180 = _flag(where, parameters, "rfc4180")
    return FileFormat(
        delimiter=_delimiter(where, parameters, rfc4180),
        rfc4180=rfc4180,
        headers=_flag(where, parameters, "headers"),
        compress=_flag(where, parameters, "compress"),
        columns=_columns(where, parameters, arity),
        stdout=parameters.get("IO") == "stdout",
    )


def _flag(where: str, parameters: Mapping[str, str], name: str) -> bool:
    value = parameters.get(name, "false")
    if value not in ("true", "false"):
        raise UsageError(f"{where}: `{name}` must be true or false, not `{value}`")
    return value == "true"


def _delimiter(where: str, parameters: Mapping[str, str], rfc4180: bool) -> str:
    # The lexer decodes escapes in strings; `delimiter=\t` can also arrive as two characters.
    delimiter = parameters.get("delimiter", "," if rfc4180 else "\t").replace("\\t", "\t")
    if not delimiter:
        raise UsageError(f"{where}: the delimiter is empty\n  help: leave it out for a tab")
    if "\n" in delimiter or "\r" in delimiter:
        raise UsageError(f"{where}: the delimiter cannot contain the end of a line")
    if rfc4180 and '"' in delimiter:
        raise UsageError(f"{where}: the delimiter cannot contain a quote when rfc4180=true")
    return delimiter


def _columns(where: str, parameters: Mapping[str, str], arity: int) -> tuple[int, ...] | None:
    text = parameters.get("columns", "")
    if not text:
        return None
    parts = text.split(":")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise UsageError(
            f"{where}: `columns` must be a list such as `0:2:3`, counted from 0, not `{text}`"
        )
    columns = tuple(map(int, parts))
    if len(columns) != arity or len(set(columns)) != arity:
        raise UsageError(
            f"{where}: `columns` must name {arity} different columns of the file, not `{text}`"
        )
    return columns
