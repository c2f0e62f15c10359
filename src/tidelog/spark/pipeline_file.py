"""The pipeline file: TOML becomes declarations, with an error that names the key and the fix.

[pipeline]
name = "fraud"
program = "fraud.dl"            # paths are relative to the file
state = "state"

[[source]]
relation = "payment"
format = "csv"
path = "in/payment"

[[sink]]
view = "fraud"
path = "out/fraud"
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.errors import UsageError, did_you_mean
from tidelog.spark.declared import PLACEMENTS, Sink, Source, one_of

_PIPELINE = {
    "name": str,
    "program": str,
    "state": str,
    "placement": str,
    "shards": int,
    "on_program_change": str,
    "poll_seconds": float,
    "retain_epochs": int,
    "spark": dict,
}
_SOURCE = {
    "relation": str,
    "format": str,
    "path": str,
    "mode": str,
    "op": str,
    "name": str,
    "options": dict,
    "columns": dict,
    "files_per_epoch": int,
    "time_unit": str,
}
_SINK = {"view": str, "what": str, "format": str, "path": str, "name": str, "options": dict}
_NAMES = {str: "text in quotes", int: "a whole number", float: "a number", dict: "a table { .. }"}


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline as its file declares it; all paths are absolute, or addresses."""

    file: Path
    name: str
    program: Path
    state: Path
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    placement: str = "auto"
    shards: int | None = None
    on_program_change: str = "refuse"
    poll_seconds: float = 1.0
    retain_epochs: int = 1000
    spark: Mapping[str, str] | None = None
    """Settings for the Spark session, as they are."""


def read_pipeline_file(path: str | Path) -> PipelineFile:
    """Return what the file declares; raise UsageError with the place and the likely fix."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UsageError(f"there is no pipeline file `{path}`") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the pipeline file `{path}`: {error}") from None
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: this is not TOML: {error}") from None
    return _Reading(path).pipeline(content)


class _Reading:
    """Reads one file; knows its name for messages, and its folder for paths."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._folder = file.resolve().parent

    def pipeline(self, content: Mapping[str, Any]) -> PipelineFile:
        self._known("the file", content, ("pipeline", "source", "sink"))
        where = "[pipeline]"
        if not isinstance(content.get("pipeline"), dict):
            raise self._error(where, "is missing", 'begin with [pipeline] and program = "x.dl"')
        keys = self._keys(where, content["pipeline"], _PIPELINE, required=("program",))
        placement = keys.get("placement", "auto")
        with self._at(where):
            one_of("placement", placement, PLACEMENTS)
            one_of(
                "on_program_change",
                keys.get("on_program_change", "refuse"),
                ("refuse", "rebuild"),
            )
        if keys.get("poll_seconds", 1.0) < 0:
            raise self._error(where, "`poll_seconds` cannot be below 0")
        program = Path(self._path(keys.pop("program")))
        if not program.is_file():
            raise self._error(where, f"there is no program `{program}`", "see `program`")
        state = Path(self._path(keys.pop("state", "state")))
        settings = self._strings(where, "spark", keys.pop("spark", {}))
        keys.setdefault("name", self._file.stem)
        return PipelineFile(
            file=self._file,
            program=program,
            state=state,
            sources=tuple(self._source(*item) for item in self._tables(content, "source")),
            sinks=tuple(self._sink(*item) for item in self._tables(content, "sink")),
            spark=settings,
            **keys,
        )

    def _source(self, where: str, table: Mapping[str, Any]) -> Source:
        keys = self._keys(where, table, _SOURCE, required=("relation", "format"))
        keys["options"] = self._strings(where, "options", keys.get("options", {}))
        keys["columns"] = self._strings(where, "columns", keys.get("columns", {}))
        if keys.get("path"):
            keys["path"] = self._path(keys["path"])
        with self._at(where):
            return Source(**keys)

    def _sink(self, where: str, table: Mapping[str, Any]) -> Sink:
        keys = self._keys(where, table, _SINK, required=("view",))
        keys["options"] = self._strings(where, "options", keys.get("options", {}))
        if keys.get("path"):
            keys["path"] = self._path(keys["path"])
        with self._at(where):
            return Sink(**keys)

    def _tables(self, content: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
        tables = content.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            raise self._error(f"[{key}]", "is one table", f"write [[{key}]], for each one")
        return [(f"[[{key}]] number {i}", table) for i, table in enumerate(tables, start=1)]

    def _keys(
        self,
        where: str,
        table: Mapping[str, Any],
        types: Mapping[str, type],
        required: tuple[str, ...],
    ) -> dict[str, Any]:
        self._known(where, table, tuple(types))
        for key in required:
            if key not in table:
                raise self._error(where, f"`{key}` is missing", f"its keys: {', '.join(types)}")
        for key, value in table.items():
            wanted = types[key]
            fits = isinstance(value, int | float if wanted is float else wanted)
            if not fits or (isinstance(value, bool) and wanted is not bool):
                raise self._error(where, f"`{key}` must be {_NAMES[wanted]}, not {value!r}")
        return dict(table)

    def _known(self, where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                hint = did_you_mean(key, known)
                raise self._error(
                    where, f"unknown key `{key}`", hint or f"its keys: {', '.join(known)}"
                )

    def _strings(self, where: str, key: str, table: Mapping[str, Any]) -> dict[str, str]:
        result = {}
        for name, value in table.items():
            if isinstance(value, dict | list):
                raise self._error(where, f"`{key}`: `{name}` must be text, not {value!r}")
            result[name] = str(value).lower() if isinstance(value, bool) else str(value)
        return result

    def _path(self, path: str) -> str:
        return path if "://" in path else str(self._folder / path)

    def _at(self, where: str) -> _Located:
        return _Located(self, where)

    def _error(self, where: str, what: str, hint: str | None = None) -> UsageError:
        return UsageError(f"{self._file}: {where}: {what}" + (f"\n  help: {hint}" if hint else ""))


class _Located:
    """Puts file and table in front of the errors of its block."""

    def __init__(self, reading: _Reading, where: str) -> None:
        self._reading, self._where = reading, where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, UsageError):
            raise self._reading._error(self._where, str(error)) from None
