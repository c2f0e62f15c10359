"""All files of a run, or none of them.

Every file is first written beside its target under another name, and renamed when all are there. A
full disk or a missing permission therefore leaves the old files as they were. The renaming itself
is not one step, so a machine that stops within it can leave some files new and some old, but each
of them whole. Nothing is synced to disk: results can be computed again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tidelog.errors import UsageError


def write_all(files: Mapping[Path, bytes]) -> None:
    """Write all `files`, making folders as needed; raise UsageError and write none otherwise."""
    with contextlib.ExitStack() as on_failure:
        ready: list[tuple[Path, Path]] = []
        direct: list[tuple[Path, bytes]] = []
        for path, data in files.items():
            with _named(path):
                # A link stays a link; what it points to is replaced.
                target = path.resolve()
                if target.is_dir():
                    raise UsageError(f"cannot write `{path}`: it is a folder")
                if target.exists() and not target.is_file():
                    direct.append((target, data))  # a device or a pipe cannot be replaced
                    continue
                _make_folders(target.parent, on_failure)
                temporary = target.with_name(f".tidelog-{secrets.token_hex(8)}.tmp")
                on_failure.callback(_remove, temporary, os.unlink)
                with open(temporary, "xb") as file:
                    file.write(data)
                ready.append((temporary, target))
        for temporary, target in ready:
            with _named(target):
                os.replace(temporary, target)
        for target, data in direct:
            with _named(target):
                target.write_bytes(data)
        on_failure.pop_all()


def _make_folders(folder: Path, on_failure: contextlib.ExitStack) -> None:
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir()
        on_failure.callback(_remove, new, os.rmdir)


def _remove(path: Path, remove: Callable[[Path], None]) -> None:
    # It may never have been made, and others may have put something in a folder by now. Neither
    # must hide the error that led here.
    with contextlib.suppress(OSError):
        remove(path)


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot write `{path}`: {error.strerror or error}") from None
