"""Databases with options that only this project's own code and its tests use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tidelog import Database, Program
from tidelog.database.core import Options
from tidelog.database.database import open_database
from tidelog.durable.files import Files
from tidelog.persist.settings import Settings


def durable(
    program: str | Program,
    where: Files | Path,
    facts: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Database:
    """Open a durable database in a folder, or in files that fail, with any of its settings."""
    files = where if isinstance(where, Files) else Files(where)
    return open_database(program, Options(files=files, settings=Settings(**settings)), facts)
