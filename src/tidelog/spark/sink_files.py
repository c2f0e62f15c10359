"""Views in files, written by Spark: Parquet, CSV, JSON or ORC.

In a local folder, Spark writes to a hidden folder beside the target. Then the files get their final
names, are synced, and are put in the place of the old ones:

    out/fraud                          a table: the whole folder is exchanged for the new one
    out/fraud.csv                      a table in one file, which is replaced
    out/fraud/epoch-000000000007.csv   the changes of an epoch; -00001 and so on if they are many

A table in one file is always called part-00000. Several files have the epoch in their names: a
reader that has listed the old folder fails, and does not take some files of each.

Elsewhere (`s3a://..`, `hdfs://..`) Spark overwrites the target, which is not atomic.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidelog.errors import DataError, UsageError
from tidelog.io.atomic import sync_folder, sync_together
from tidelog.spark.jobs import settings
from tidelog.spark.sinks import Writer
from tidelog.spark.view_changes import EPOCH

_TIME = "yyyy-MM-dd HH:mm:ss.SSSSSS"
_TEXT_OPTIONS = {"timestampFormat": _TIME, "timestampNTZFormat": _TIME, "timeZone": "UTC"}
JSON_OPTIONS = {**_TEXT_OPTIONS, "ignoreNullFields": "false"}
_OPTIONS = {
    # As most readers want it: quotes are doubled, and spaces are kept.
    "csv": {
        **_TEXT_OPTIONS,
        "header": "true",
        "escape": '"',
        "ignoreLeadingWhiteSpace": "false",
        "ignoreTrailingWhiteSpace": "false",
    },
    "json": JSON_OPTIONS,
}
# Spark's default for timestamps in Parquet is a type that others have given up.
_SETTINGS = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux
_HERE = -100  # AT_FDCWD: paths are relative to the current folder
_NESTED = ("array", "map", "struct")


def flat(frame: Any) -> Any:
    """Return a frame with nested columns as JSON, for formats that cannot represent them."""
    from pyspark.sql import functions as F

    nested = {
        field.name: F.to_json(f"`{field.name}`", JSON_OPTIONS)
        for field in frame.schema
        if field.dataType.typeName() in _NESTED
    }
    return frame.withColumns(nested) if nested else frame


def saved(writer: Writer, frame: Any, path: str, mode: str) -> None:
    """Have Spark write a frame to a path in the format of a sink."""
    spec = writer.spec
    with settings(frame.sparkSession, _SETTINGS):
        making = (flat(frame) if spec.format == "csv" else frame).write.format(spec.format)
        making = making.options(**{**_OPTIONS.get(spec.format, {}), **spec.options})
        if spec.partition_by:
            making = making.partitionBy(*spec.partition_by)
        making.mode(mode).save(path)


class FileWriter(Writer):
    """Files in a folder that this process sees under the same path as Spark."""

    @property
    def _target(self) -> Path:
        return Path(os.path.abspath(self.spec.path.removeprefix("file://")))

    @property
    def _is_one_file(self) -> bool:
        named = self._target.suffix == f".{self.spec.format}"
        return self.spec.what == "table" and named and not self.spec.partition_by

    def start(self, spark: Any, token: str) -> None:
        """Remove what a writer that was killed has left behind."""
        super().start(spark, token)
        target = self._target
        if target.parent.is_dir():
            for path in target.parent.iterdir():
                if path.name.startswith(f".{target.name}.") and path.name.endswith(".tmp"):
                    _remove(path)

    @property
    def is_there(self) -> bool:
        """Whether the files of a table exist."""
        if self.spec.what != "table":
            return True
        if self._is_one_file or self.spec.partition_by:
            return self._target.exists()
        return any(self._target.glob("part-*"))

    def written_epochs(self) -> set[int]:
        """Return the epochs that have a file."""
        found = (re.match(r"epoch-(\d{12})", path.name) for path in self._target.rglob("epoch-*"))
        return {int(match[1]) for match in found if match}

    def has_all(self, epoch: int) -> bool:
        """Return whether an epoch has the file that is put last; if not, remove the others."""
        found = [path.name for path in self._target.rglob(f"{_name(epoch)}*")]
        first = (_name(epoch) + f".{self.spec.format}", _name(epoch) + _part(0))
        if any(name.startswith(first) for name in found):
            return True
        for path in self._target.rglob(f"{_name(epoch)}*"):
            path.unlink()
        return False

    def write_table(self, epoch: int, frame: Any) -> None:
        """Replace the files of the view."""
        target = self._target
        if not self._is_one_file:
            self._check_folder()
        with self._staged(frame.coalesce(1) if self._is_one_file else frame) as (folder, files):
            if self._is_one_file:
                (only,) = files
                sync_together(files)
                os.replace(only, target)
            else:
                alone = len(files) == 1
                sync_together(files)
                for folders, numbers in _by_folder(files).items():
                    for number, file in enumerate(numbers):
                        name = f"part-{number:05d}" + ("" if alone else f"-{epoch:012d}")
                        os.replace(file, folders / (name + self._ending(file)))
                for path in folder.iterdir():
                    if path.name.startswith((".", "_")):
                        path.unlink()  # Spark's mark of success, and checksums
                sync_folder(folder)
                exchange(folder, target)
            sync_folder(target.parent)

    def write_changes(self, epoch: int, frame: Any) -> None:
        """Write the files of an epoch."""
        with self._staged(frame) as (folder, files):
            sync_together(files)
            self._put_changes(epoch, folder, files)

    def _put_changes(self, epoch: int, folder: Path, files: list[Path]) -> None:
        """Move synced files of an epoch from a folder to the target, the first of them last."""
        target, name = self._target, _name(epoch)
        kept = set()
        for folders, numbers in reversed(_by_folder(files).items()):
            place = target / folders.relative_to(folder)
            place.mkdir(parents=True, exist_ok=True)
            for number, file in reversed(list(enumerate(numbers))):
                more = "" if len(numbers) == 1 else _part(number)
                kept.add(place / (name + more + self._ending(file)))
                os.replace(file, place / (name + more + self._ending(file)))
            sync_folder(place)
        for path in target.rglob(f"{name}*"):
            if path not in kept:
                path.unlink()  # from an attempt with other parts

    @property
    def takes_files(self) -> bool:
        """Whether Spark writes the same files without this sink."""
        spec = self.spec
        is_plain = not spec.options and not spec.partition_by
        return spec.what == "changes" and spec.format == "parquet" and is_plain

    def write_files(self, epoch: int, files: Sequence[Path]) -> None:
        """Put the files of an epoch into the target, too."""
        with self._beside() as folder:
            folder.mkdir()
            copies = [folder / f"part-{number:05d}.parquet" for number in range(len(files))]
            pairs = zip(files, copies, strict=True)
            # The files of the state are synced already, and these may be the same.
            sync_together([copy for file, copy in pairs if not _link(file, copy)])
            self._put_changes(epoch, folder, copies)

    @contextmanager
    def _staged(self, frame: Any) -> Iterator[tuple[Path, list[Path]]]:
        """Have Spark write a frame to a hidden folder beside the target; give it and its files."""
        with self._beside() as folder:
            saved(self, frame, f"file://{folder}", "error")
            if not folder.is_dir():
                raise DataError(
                    f"Spark has written `{folder}`, and this process does not see it: they are on"
                    " different machines\n  help: give the sink a path that both see, or an address"
                    " such as s3a://.."
                )
            for path in folder.rglob(".*.crc"):
                path.unlink()
            yield folder, sorted(path for path in folder.rglob("part-*") if path.is_file())

    @contextmanager
    def _beside(self) -> Iterator[Path]:
        """Give the path of a hidden folder beside the target, and remove it at the end."""
        target = self._target
        folder = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            yield folder
        except OSError as error:
            raise UsageError(f"cannot write `{target}`: {error.strerror or error}") from None
        finally:
            _remove(folder)

    def _ending(self, file: Path) -> str:
        """Return the ending of a file: that of the format, and of what compresses a text."""
        dot = f".{self.spec.format}"
        return dot + file.name.rpartition(dot)[2]

    def _check_folder(self) -> None:
        """Raise UsageError if the folder, which is to be replaced, has files of somebody else."""
        target = self._target
        if target.exists() and not target.is_dir():
            raise UsageError(f"cannot write `{target}`: it is a file\n  help: remove it")
        for path in target.iterdir() if target.is_dir() else ():
            ours = path.name.startswith(("part-", "_", ".")) or (path.is_dir() and "=" in path.name)
            if not ours:
                raise UsageError(
                    f"cannot write a table to `{target}`: there is `{path.name}`, which is not a"
                    " part of it\n  help: a table replaces its folder, so give it one of its own"
                )


def _name(epoch: int) -> str:
    """Return how the names of an epoch's files begin."""
    return f"epoch-{epoch:012d}"


def _part(number: int) -> str:
    """Return what the name of a file has, if an epoch has several."""
    return f"-{number:05d}"


def _by_folder(files: list[Path]) -> dict[Path, list[Path]]:
    found: dict[Path, list[Path]] = {}
    for file in files:
        found.setdefault(file.parent, []).append(file)
    return found


def _link(file: Path, copy: Path) -> bool:
    """Give a file a second name; copy it if the file system cannot, and return False.

    Neither the state nor a sink changes a file of changes: each only removes its own name.
    """
    try:
        os.link(file, copy)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, copy)
        return False
    return True


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def exchange(new: Path, target: Path) -> None:
    """Put a folder in the place of another, in one step if the system can; remove the other."""
    if not target.exists():
        os.rename(new, target)
        return
    if not _exchanged(new, target):
        old = new.with_name(f"{new.name.removesuffix('.tmp')}.old.tmp")
        os.rename(target, old)
        os.rename(new, target)
        new = old
    _remove(new)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders; return False if the system or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError, TypeError):  # not Linux, or an old library
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number), str(other))


class RemoteFileWriter(Writer):
    """Files wherever Spark can write. Replacing a table is not atomic there."""

    def write_table(self, epoch: int, frame: Any) -> None:
        """Overwrite the view."""
        saved(self, frame, self.spec.path, "overwrite")

    def write_changes(self, epoch: int, frame: Any) -> None:
        """Write the folder of an epoch."""
        path = f"{self.spec.path.rstrip('/')}/{EPOCH}-{epoch:012d}"
        saved(self, frame, path, "overwrite")
