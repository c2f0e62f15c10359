"""Read a pipeline file: TOML becomes declarations. Errors name the key and the fix.

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

In `options` and `spark`, "${NAME}" is taken from the environment (environment.py).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidelog.errors import UsageError, did_you_mean
from tidelog.persist.settings import PROGRAM_CHANGES
from tidelog.runtime.retry import Retry
from tidelog.spark.declared import PLACEMENTS, Sink, Source, Trigger, one_of
from tidelog.spark.environment import Taken, expand

_PIPELINE = {
    "name": str,
    "program": str,
    "state": str,
    "placement": str,
    "shards": int,
    "on_program_change": str,
    "poll_seconds": float,
    "retain_epochs": int,
    "on_rule_error": str,
    "retry": int,
    "retry_seconds": float,
    "metrics": str,
    "metrics_port": int,
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
    "table": str,
    "schema": str,
    "select": list,
    "nulls": dict,
    "keys": list,
    "sequence": str,
    "delete_when": str,
    "watermark": str,
    "every": str,
    "retain": str,
    "retain_by": str,
    "reader": str,
    "files_per_epoch": int,
    "value": str,
    "time_unit": str,
}
_SINK = {
    "view": str,
    "what": str,
    "format": str,
    "path": str,
    "table": str,
    "partition_by": list,
    "name": str,
    "options": dict,
    "retry": int,
    "retry_seconds": float,
}
_TRIGGER = {
    "view": str,
    "on": str,
    "where": str,
    "webhook": str,
    "secret": str,
    "timeout": float,
    "max_rows": int,
    "ca_file": str,
    "path": str,
    "format": str,
    "options": dict,
    "name": str,
    "retry": int,
    "retry_seconds": float,
}
_NAMES = {
    str: "text in quotes",
    int: "a whole number",
    float: "a number",
    dict: "a table { .. }",
    list: "a list of texts",
}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline as its file declares it; all paths are absolute, or addresses."""

    file: Path
    name: str
    program: Path
    state: Path
    sources: tuple[Source, ...]
    sinks: tuple[Sink, ...]
    triggers: tuple[Trigger, ...] = ()
    placement: str = "auto"
    shards: int | None = None
    on_program_change: str = "refuse"
    poll_seconds: float = 1.0
    retain_epochs: int = 1000
    on_rule_error: str = "fail"
    retry: int = 3
    retry_seconds: float = 1.0
    metrics: str = ""
    metrics_port: int | None = None
    spark: Mapping[str, str] | None = None
    """Settings for the Spark session."""

    @property
    def written(self) -> tuple[Sink, ...]:
        """All that is written: the sinks, and those of the triggers."""
        return (*self.sinks, *(trigger.sink() for trigger in self.triggers))


def read_pipeline_file(path: str | Path) -> PipelineFile:
    """Return what a file declares; raise UsageError with the place and the likely fix."""
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
        is_program = path.suffix == ".dl"
        hint = "\n  help: this is a program; a pipeline file names it: program = .." * is_program
        raise UsageError(f"{path}: invalid TOML: {error}{hint}") from None
    return _Reading(path).pipeline(content)


class _Reading:
    """Reads one file; has its name for messages and its folder for paths."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._folder = file.resolve().parent

    def pipeline(self, content: Mapping[str, Any]) -> PipelineFile:
        self._known("the file", content, ("pipeline", "source", "sink", "trigger"))
        where = "[pipeline]"
        if not isinstance(content.get("pipeline"), dict):
            raise self.error(where, "is missing", 'begin with [pipeline] and program = "x.dl"')
        keys = self._keys(where, content["pipeline"], _PIPELINE, required=("program",))
        placement = keys.get("placement", "auto")
        with self._at(where):
            one_of("placement", placement, PLACEMENTS)
            one_of(
                "on_program_change",
                keys.get("on_program_change", "refuse"),
                PROGRAM_CHANGES,
            )
            Retry(keys.get("retry", 0), keys.get("retry_seconds", 0.0))
        if keys.get("poll_seconds", 1.0) < 0:
            raise self.error(where, "`poll_seconds` cannot be below 0")
        program = self._local_path(where, "program", keys.pop("program"))
        if not program.is_file():
            raise self.error(where, f"there is no program `{program}`", "see `program`")
        state = self._local_path(where, "state", keys.pop("state", "state"))
        settings = self._strings(where, "spark", keys.pop("spark", {}))
        if keys.get("metrics"):
            keys["metrics"] = str(self._local_path(where, "metrics", keys["metrics"]))
        keys.setdefault("name", self._file.stem)
        return PipelineFile(
            file=self._file,
            program=program,
            state=state,
            sources=tuple(self._source(*item) for item in self._tables(content, "source")),
            sinks=tuple(self._sink(*item) for item in self._tables(content, "sink")),
            triggers=tuple(self._trigger(*item) for item in self._tables(content, "trigger")),
            spark=settings,
            **keys,
        )

    def _source(self, where: str, table: Mapping[str, Any]) -> Source:
        keys = self._keys(where, table, _SOURCE, required=("relation", "format"))
        keys["options"] = self._strings(where, "options", keys.get("options", {}))
        for key in ("columns", "nulls"):
            keys[key] = self._strings(where, key, keys.get(key, {}))
        for key in ("select", "keys"):
            keys[key] = self._texts(where, key, keys.get(key, []))
        if keys.get("path") and keys["format"] != "kafka":  # there it names topics
            keys["path"] = self._path(keys["path"])
        with self._at(where):
            return Source(**keys)

    def _sink(self, where: str, table: Mapping[str, Any]) -> Sink:
        keys = self._keys(where, table, _SINK, required=("view",))
        keys["options"] = self._strings(where, "options", keys.get("options", {}))
        keys["partition_by"] = tuple(keys.get("partition_by", ()))
        if not all(isinstance(name, str) for name in keys["partition_by"]):
            raise self.error(where, '`partition_by` must be a list of columns: ["country"]')
        if keys.get("path"):
            keys["path"] = self._path(keys["path"])
        with self._at(where):
            return Sink(**keys)

    def _trigger(self, where: str, table: Mapping[str, Any]) -> Trigger:
        keys = self._keys(where, table, _TRIGGER, required=("view",))
        keys["options"] = self._strings(where, "options", keys.get("options", {}))
        for key in ("webhook", "secret"):
            with self._at(f"{where}: `{key}`"):
                keys[key] = expand(keys.get(key, ""))
        if "secret" in table and not isinstance(keys["secret"], Taken):
            raise self.error(
                where, "`secret` must come from the environment", 'secret = "${HOOK_SECRET}"'
            )
        for key in ("path", "ca_file"):
            if keys.get(key):
                keys[key] = self._path(keys[key])
        with self._at(where):
            return Trigger(**keys)

    def _tables(self, content: Mapping[str, Any], key: str) -> list[tuple[str, Mapping[str, Any]]]:
        tables = content.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
            raise self.error(
                f"[{key}]", "must be a list of tables", f"write [[{key}]] for each one"
            )
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
                raise self.error(where, f"`{key}` is missing", f"its keys: {', '.join(types)}")
        for key, value in table.items():
            wanted = types[key]
            fits = isinstance(value, int | float if wanted is float else wanted)
            if not fits or (isinstance(value, bool) and wanted is not bool):
                raise self.error(where, f"`{key}` must be {_NAMES[wanted]}, not {value!r}")
        return dict(table)

    def _known(self, where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                hint = did_you_mean(key, known)
                raise self.error(
                    where, f"unknown key `{key}`", hint or f"its keys: {', '.join(known)}"
                )

    def _strings(self, where: str, key: str, table: Mapping[str, Any]) -> dict[str, str]:
        result = {}
        for name, value in table.items():
            if isinstance(value, dict | list):
                raise self.error(where, f"`{key}`: `{name}` must be text, not {value!r}")
            text = str(value).lower() if isinstance(value, bool) else str(value)
            with self._at(f"{where}: `{key}`: `{name}`"):
                result[name] = text if key in ("columns", "nulls") else expand(text)
        return result

    def _texts(self, where: str, key: str, values: list[Any]) -> tuple[str, ...]:
        for value in values:
            if not isinstance(value, str):
                raise self.error(where, f"`{key}` must be a list of texts, not {values!r}")
        return tuple(values)

    def _path(self, path: str) -> str:
        """Return a path as it is used: an address, or absolute on this machine."""
        if path.startswith("file:/"):
            return "/" + path.removeprefix("file:").lstrip("/")
        return path if _SCHEME.match(path) else str(self._folder / path)

    def _local_path(self, where: str, key: str, path: str) -> Path:
        found = self._path(path)
        if _SCHEME.match(found):
            raise self.error(
                where, f"`{key}` must be a path on this machine, not `{path}`",
                "mount it, or bring it with spark-submit --files; sources and sinks may be anywhere"
                if key == "program" else "a folder that all machines have under the same path",
            )  # fmt: skip
        return Path(found)

    def _at(self, where: str) -> _Located:
        return _Located(self, where)

    def error(self, where: str, what: str, hint: str | None = None) -> UsageError:
        return UsageError(f"{self._file}: {where}: {what}" + (f"\n  help: {hint}" if hint else ""))


class _Located:
    """Prefixes the errors of its block with file and table."""

    def __init__(self, reading: _Reading, where: str) -> None:
        self._reading, self._where = reading, where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, UsageError):
            raise self._reading.error(self._where, str(error)) from None
