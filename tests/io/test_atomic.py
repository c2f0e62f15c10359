"""All files are written, or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tidelog.errors import UsageError
from tidelog.io.atomic import write_all


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_all_files_are_written_with_their_folders(tmp_path: Path) -> None:
    write_all({tmp_path / "a.csv": [b"1"], tmp_path / "x" / "y" / "b.csv": [b"2"]})
    assert (tmp_path / "a.csv").read_bytes() == b"1"
    assert (tmp_path / "x" / "y" / "b.csv").read_bytes() == b"2"
    assert everything_below(tmp_path) == ["a.csv", "x", "x/y", "x/y/b.csv"]


def test_an_old_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a longer old content")
    write_all({tmp_path / "a.csv": [b"new"]})
    assert (tmp_path / "a.csv").read_bytes() == b"new"


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_all({tmp_path / "a.csv": [b""]})
    assert (tmp_path / "a.csv").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_target_that_is_a_folder_leaves_everything_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"old")
    (tmp_path / "b.csv").mkdir()
    with pytest.raises(UsageError, match=r"cannot write `.*b\.csv`: it is a folder"):
        write_all({tmp_path / "a.csv": [b"new"], tmp_path / "b.csv": [b"new"]})
    assert (tmp_path / "a.csv").read_bytes() == b"old"
    assert everything_below(tmp_path) == ["a.csv", "b.csv"]


def test_a_folder_that_is_a_file_leaves_everything_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(UsageError, match=r"cannot write `.*b\.csv`"):
        write_all({tmp_path / "new" / "a.csv": [b"1"], tmp_path / "x" / "b.csv": [b"2"]})
    assert everything_below(tmp_path) == ["x"]


def test_a_full_disk_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_bytes(b"old")
    opened = []

    def full(path: Any, mode: str) -> Any:
        opened.append(path)
        if len(opened) == 3:
            raise OSError(28, "No space left on device")
        return open(path, mode)

    monkeypatch.setattr("tidelog.io.atomic.open", full, raising=False)
    with pytest.raises(UsageError, match=r"cannot write `.*c\.csv`: No space left on device"):
        write_all({tmp_path / name: [b"new"] for name in ("a.csv", "b.csv", "c.csv")})
    assert (tmp_path / "a.csv").read_bytes() == b"old"
    assert everything_below(tmp_path) == ["a.csv"]


def test_a_rename_that_fails_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(UsageError, match=r"cannot write `.*a\.csv`: Permission denied"):
        write_all({tmp_path / "x" / "a.csv": [b"1"]})
    assert everything_below(tmp_path) == []


def test_an_interrupt_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(source: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_all({tmp_path / "a.csv": [b"1"]})
    assert everything_below(tmp_path) == []


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_bytes(b"old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    write_all({tmp_path / "link.csv": [b"new"]})
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_bytes() == b"new"


def test_a_device_is_written_to_and_not_replaced() -> None:
    before = os.stat(os.devnull).st_ino
    write_all({Path(os.devnull): [b"data"]})
    assert os.stat(os.devnull).st_ino == before
