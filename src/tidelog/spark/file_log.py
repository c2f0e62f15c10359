"""Which files a micro-batch has, according to Spark's checkpoint.

The frame of a micro-batch does not tell its files, and the driver must know them before it reads:
their headers decide how they are read, and their times decide the order of rows. Spark writes both
logs before it starts the batch:

    checkpoint/offsets/7         for each source, how far its log goes in batch 7
    checkpoint/sources/0/3       the files that entry 3 of the log of source 0 adds
    checkpoint/sources/0/9.compact   all entries up to 9

Both have had this form since Spark 2.1. Another version of it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tidelog.errors import StateError

_VERSION = "v1"


def files_of_batch(checkpoint: Path, batch: int, tags: Iterable[int]) -> dict[int, list[str]]:
    """Return the addresses of the files that sources of files have in a batch, by tag."""
    now = _offsets(checkpoint, batch)
    before = _offsets(checkpoint, batch - 1) if batch else []
    found = {}
    for tag in tags:
        last = _entry(now, tag)
        first = _entry(before, tag)
        entries = range(first + 1, last + 1)
        found[tag] = _logged(checkpoint / "sources" / str(tag), entries) if entries else []
    return found


def _offsets(checkpoint: Path, batch: int) -> list[str]:
    """Return the offset of each source at the end of a batch, as Spark writes it."""
    return _lines(checkpoint / "offsets" / str(batch))[1:]  # the first line has settings


def _entry(offsets: list[str], tag: int) -> int:
    """Return the last entry of the log of a source; -1 if there is none."""
    if tag >= len(offsets) or offsets[tag] == "-":
        return -1
    return int(_decoded(offsets[tag])["logOffset"])


def _logged(folder: Path, entries: range) -> list[str]:
    """Return the addresses of the files that some entries of a log add."""
    found: list[str] = []
    for entry in entries:
        compact = next((folder / f"{n}.compact" for n in entries if n >= entry and
                        (folder / f"{n}.compact").exists()), None)  # fmt: skip
        path = folder / str(entry)
        lines = _lines(path if path.exists() or compact is None else compact)
        decoded = map(_decoded, lines)
        found += [file["path"] for file in decoded if int(file["batchId"]) == entry]
    return found


def _lines(path: Path) -> list[str]:
    try:
        version, *lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise StateError(f"cannot read `{path}` of Spark's checkpoint: {error}") from None
    if version != _VERSION:
        raise StateError(
            f"`{path}` is of version {version}, and Tidelog knows only {_VERSION}"
            '\n  help: reader = "arrow" reads local files without a stream'
        )
    return lines


def _decoded(line: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(line)
    return value
