"""Exports and copies of a state, on file systems that Arrow reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

import tidelog
from tests.databases import durable
from tests.faults.workload import PROGRAM, commit, compare, expected, facts_at, first_facts
from tidelog.durable.places import Place
from tidelog.persist import state_copy
from tidelog.persist.state_copy import copy_state
from tidelog.persist.state_tools import export_state, import_state, verify

SEED = 5
EPOCHS = 9


@pytest.fixture
def state(tmp_path: Path) -> Path:
    settings = {"snapshot_bytes": 900, "step_bytes": 400, "segment_bytes": 1500}
    with durable(PROGRAM, tmp_path / "state", first_facts(), **settings) as db:
        for _ in range(EPOCHS):
            commit(db, SEED)
    return tmp_path / "state"


def check(folder: Path, epoch: int = EPOCHS) -> None:
    with tidelog.Database(PROGRAM, path=folder) as db:
        assert db.epoch == epoch
        compare(db, expected(facts_at(SEED, epoch)), str(folder))
        commit(db, SEED)
        compare(db, expected(facts_at(SEED, epoch + 1)), str(folder))


def elsewhere(kind: str, folder: Path) -> tuple[str, Any]:
    """Return a place, and its file system if it cannot be told from the address."""
    if kind == "address":
        return f"file://{folder}/else%20where", None
    if kind == "subtree":
        folder.mkdir()
        return "else/where", fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    if kind == "memory":
        return "bucket/where", fs._MockFileSystem()
    return str(folder), None


KINDS = ("path", "address", "subtree", "memory")


@pytest.mark.parametrize("kind", KINDS)
def test_an_export(kind: str, state: Path, tmp_path: Path) -> None:
    place, filesystem = elsewhere(kind, tmp_path / "far")
    assert export_state(state, place, filesystem) == EPOCHS
    with pytest.raises(tidelog.UsageError, match="is not empty"):
        export_state(state, place, filesystem)
    assert import_state(place, tmp_path / "new", filesystem) == EPOCHS
    check(tmp_path / "new")


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_and_back(kind: str, state: Path, tmp_path: Path) -> None:
    place, filesystem = elsewhere(kind, tmp_path / "far")
    assert copy_state(state, place, filesystem) == EPOCHS
    with pytest.raises(tidelog.UsageError, match="is not empty"):
        copy_state(state, place, filesystem)
    assert copy_state(place, tmp_path / "new", filesystem) == EPOCHS
    assert verify(tmp_path / "new", deep=True).problems == ()
    check(tmp_path / "new")
    with pytest.raises(tidelog.UsageError, match="is not empty"):
        copy_state(place, tmp_path / "new", filesystem)
    check(state)


def test_a_copy_of_a_database_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer goes on, replaces the manifest and removes files between any two steps."""
    settings = {"snapshot_bytes": 10**9, "segment_bytes": 700}
    with durable(PROGRAM, tmp_path / "state", first_facts(), retain_epochs=1, **settings) as db:
        for _ in range(4):
            commit(db, SEED)
        opened, committed = state_copy._opened, state_copy._committed
        moments = iter([1, 0, 1, 1])  # before files are opened, and before the log is read

        def meanwhile() -> None:
            if next(moments, 0):
                commit(db, SEED)
                db.snapshot()

        def late_opened(*args: Any) -> Any:
            meanwhile()
            return opened(*args)

        def late_committed(*args: Any) -> Any:
            meanwhile()
            commit(db, SEED)
            return committed(*args)

        monkeypatch.setattr(state_copy, "_opened", late_opened)
        monkeypatch.setattr(state_copy, "_committed", late_committed)
        epoch = copy_state(tmp_path / "state", tmp_path / "copy")
        assert epoch > 4
        monkeypatch.undo()
        commit(db, SEED)
        assert db.epoch > epoch
    check(tmp_path / "copy", epoch)


def test_a_copy_that_fails_is_no_copy(state: Path, tmp_path: Path) -> None:
    limited = _Limited(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem()), 3)
    with pytest.raises(tidelog.StateError, match=r"cannot write `far/.*`: the disk is full"):
        copy_state(state, "far", limited)
    assert len(list((tmp_path / "far").iterdir())) == 3
    with pytest.raises(tidelog.UsageError, match="there is no database in `far`"):
        copy_state("far", tmp_path / "new", limited)
    check(state)


class _Limited:
    """A file system on which so many files can be written."""

    def __init__(self, inner: fs.FileSystem, files: int) -> None:
        self._inner, self._files = inner, files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open_output_stream(self, path: str) -> Any:
        if not self._files:
            raise OSError("the disk is full\n(that is, some day)")
        self._files -= 1
        return self._inner.open_output_stream(path)


@pytest.mark.parametrize("path", ["s3://bucket/state", Path("s3://bucket/state"), "gs://b/x"])
def test_a_database_in_use_lies_on_a_local_disk(path: str | Path, tmp_path: Path) -> None:
    for use in (
        lambda: tidelog.Database(PROGRAM, path=path),
        lambda: tidelog.open_reader(path),
        lambda: verify(path),
    ):
        with pytest.raises(tidelog.UsageError, match=r"must be on a local disk\n  help: .* copy"):
            use()
    assert not Path("s3:").exists()


def test_the_address_of_a_local_folder(tmp_path: Path) -> None:
    with tidelog.Database(PROGRAM, path=f"file://{tmp_path}/a%20b", facts=first_facts()) as db:
        commit(db, SEED)
    assert (tmp_path / "a b" / "MANIFEST").exists()
    assert tidelog.open_reader(f"file://localhost{tmp_path}/a%20b").epoch == 1
    with pytest.raises(tidelog.UsageError, match="is on another machine, `there`"):
        tidelog.open_reader(f"file://there{tmp_path}")


def test_a_place_that_nobody_knows(state: Path) -> None:
    with pytest.raises(
        tidelog.UsageError, match=r"is not an address that Arrow supports: .*\n  help"
    ):
        export_state(state, "nowhere://a/b")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    place = Place(tmp_path / "nothing")
    assert place.names() == []
    with pytest.raises(tidelog.StateError, match=r"cannot read `.*/nothing/x`: "):
        place.read("x")
