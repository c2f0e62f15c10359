"""The quarantine: rows that did not fit, with the reason, as lines of JSON.

There is a file for each source and epoch; of a sharded pipeline one for each shard that has bad
rows. It is written before the epoch commits, so no row is lost. Files of epochs that were never
committed are removed at the next start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tidelog.io.atomic import file_name, remove_leftovers, replace_text
from tidelog.spark.checking import BadRow

_FILE = re.compile(r"epoch-(\d+)(?:-\d+)?\.jsonl")


class Quarantine:
    """A folder of rows that were not accepted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def write(self, epoch: int, bad: Mapping[str, Sequence[BadRow]]) -> None:
        """Write the bad rows of an epoch, by source; replace files that exist for it."""
        self.remove_from(epoch)
        self._write(epoch, "", bad)

    def write_part(self, epoch: int, number: int, bad: Mapping[str, Sequence[BadRow]]) -> None:
        """Write the bad rows that one shard has of an epoch. A task that runs again replaces it."""
        self._write(epoch, f"-{number}", bad)

    def _write(self, epoch: int, part: str, bad: Mapping[str, Sequence[BadRow]]) -> None:
        for source, rows in bad.items():
            if not rows:
                continue
            lines = [
                json.dumps(
                    {
                        "epoch": epoch, "source": source, "reason": row.reason,
                        "file": row.file, "row": row.row,
                    },
                    ensure_ascii=False, default=str,
                )
                for row in rows
            ]  # fmt: skip
            path = self._folder / file_name(source) / f"epoch-{epoch:012d}{part}.jsonl"
            replace_text(path, "".join(f"{line}\n" for line in lines))

    def remove_from(self, epoch: int) -> None:
        """Remove the rows of this epoch and of later ones: they were never committed."""
        if not self._folder.is_dir():
            return
        for folder in self._folder.iterdir():
            remove_leftovers(folder)
            for path in folder.iterdir():
                found = _FILE.fullmatch(path.name)
                if found and int(found[1]) >= epoch:
                    path.unlink()
