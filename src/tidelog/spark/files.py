"""Files that are there whole or not at all, also after the machine has stopped.

Written under a hidden name, synced, and renamed: whoever reads the folder sees the old file or the
new one.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidelog.errors import UsageError


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Have `write` make a file at a hidden path, and put it in the place of `path`."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        _sync(temporary)
        os.replace(temporary, path)
        _sync(path.parent)
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror or error}") from None
    finally:
        temporary.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Put text in the place of a file."""
    replace_file(path, lambda target: _write_text(target, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def read_json(path: Path) -> Any:
    """Return what a file of JSON holds; None if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file, and return when it is on the disk."""
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Return when the names of all files of a folder are on the disk."""
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Remove what a writer that was killed has left half-written."""
    if folder.is_dir():
        for path in folder.glob(".*.tmp"):
            path.unlink(missing_ok=True)


def file_name(name: str) -> str:
    """Return a name that is fit for a file.

    >>> file_name("a/b c")
    'a_b_c'
    """
    return re.sub(r"[^\w.-]", "_", name)
