"""Epochs and their changes files."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.typed_values import RECORDS, TYPES, relation, rows
from tidelog.errors import DataError, FactsError, UsageError
from tidelog.io.changes import epoch_files, format_changes, list_epochs, read_changes
from tidelog.logic.program import Relation
from tidelog.values.types import NUMBER, SYMBOL

EDGE = relation(NUMBER, SYMBOL, name="edge")
Changes = list[tuple[bool, tuple[object, ...]]]


def read(folder: Path, content: str | bytes, of: Relation) -> Changes:
    path = folder / "r.changes"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_changes(path, of, RECORDS)


def test_changes_are_read_in_file_order(tmp_path: Path) -> None:
    changes = read(tmp_path, "+\t2\tb\n-\t1\ta\n+\t1\ta\n", EDGE)
    assert changes == [(True, (2, "b")), (False, (1, "a")), (True, (1, "a"))]


def test_changes_of_a_nullary_relation_are_signs(tmp_path: Path) -> None:
    assert read(tmp_path, "+\n-\n+\t()\n", relation()) == [(True, ()), (False, ()), (True, ())]


def test_changes_may_be_packed(tmp_path: Path) -> None:
    assert read(tmp_path, gzip.compress(b"+\t1\ta\n"), EDGE) == [(True, (1, "a"))]


def test_many_changes_are_read_as_few_are(tmp_path: Path) -> None:
    changes = read(tmp_path, "+\t1\ta\n-\t2\tb\n" * 20_000, EDGE)
    assert changes == [(True, (1, "a")), (False, (2, "b"))] * 20_000


@pytest.mark.parametrize(
    ("content", "of", "column", "reason"),
    [
        ("1\ta\n", EDGE, 4, "expected 3 fields, found 2"),
        ("*\t1\ta\n", EDGE, 1, "expected `+` or `-`, found `*`"),
        ("+\tx\ta\n", EDGE, 3, "`x` is not a number"),
        ("+\t1\ta\tb\n", EDGE, 7, "expected 3 fields, found 4"),
        ("()\n", relation(), 1, "expected `+` or `-`, found `()`"),
        ("+\tx\n", relation(), 1, "expected `+` or `-`, found `+\tx`"),
    ],
)
def test_a_mistake_has_its_place_and_reason(
    tmp_path: Path, content: str, of: Relation, column: int, reason: str
) -> None:
    with pytest.raises(FactsError) as caught:
        read(tmp_path, content, of)
    assert (caught.value.line, caught.value.column) == (1, column)
    assert caught.value.reason == reason


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FactsError, match="no such changes file"):
        read_changes(tmp_path / "edge.changes", EDGE, {})


def test_changes_are_written_in_row_order_with_both_signs_merged() -> None:
    text = format_changes([(3, "c"), (1, "a")], [(10, "x"), (2, "b")], EDGE, {})
    assert text == "+\t1\ta\n-\t2\tb\n+\t3\tc\n-\t10\tx\n"


def test_a_deletion_goes_before_an_insertion_of_the_same_row() -> None:
    assert format_changes([(1, "a")], [(1, "a")], EDGE, {}) == "-\t1\ta\n+\t1\ta\n"


def test_changes_of_a_nullary_relation_are_written_as_signs() -> None:
    assert format_changes([()], [], relation(), {}) == "+\n"
    assert format_changes([], [()], relation(), {}) == "-\n"


def test_no_changes_are_an_empty_text() -> None:
    assert format_changes([], [], EDGE, {}) == ""


def test_a_row_that_cannot_be_written_is_an_error() -> None:
    with pytest.raises(DataError, match="a row of `edge` cannot be written: `b` contains the del"):
        format_changes([(1, "a\tb")], [], EDGE, {})


@given(st.data())
def test_what_is_written_reads_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    of = relation(*data.draw(st.lists(st.sampled_from(TYPES), max_size=3)))
    inserted, deleted = data.draw(rows(of, max_size=4)), data.draw(rows(of, max_size=4))
    try:
        text = format_changes(inserted, deleted, of, RECORDS)
    except DataError:
        return
    found = read(tmp_path_factory.mktemp("changes"), text, of)
    expected = [(True, row) for row in inserted] + [(False, row) for row in deleted]
    assert Counter(found) == Counter(expected)


def test_epochs_are_the_folders_in_name_order(tmp_path: Path) -> None:
    for name in ("2", "10", "1", ".hidden"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.txt").touch()
    assert [path.name for path in list_epochs(tmp_path)] == ["1", "10", "2"]


def test_a_missing_folder_of_epochs_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        list_epochs(tmp_path / "epochs")


def test_a_file_is_not_a_folder_of_epochs(tmp_path: Path) -> None:
    (tmp_path / "epochs").touch()
    with pytest.raises(UsageError, match="is not a folder"):
        list_epochs(tmp_path / "epochs")


def test_the_files_of_an_epoch_are_found_by_relation(tmp_path: Path) -> None:
    for name in ("b.changes", "a.changes.gz", "lib.edge.changes", ".DS_Store"):
        (tmp_path / name).touch()
    assert {name: path.name for name, path in epoch_files(tmp_path).items()} == {
        "a": "a.changes.gz",
        "b": "b.changes",
        "lib.edge": "lib.edge.changes",
    }


def test_strangers_in_an_epoch_are_named(tmp_path: Path) -> None:
    for name in ("a.changes", "b.facts", "c.txt"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"that are not changes: b\.facts, c\.txt"):
        epoch_files(tmp_path)


def test_a_relation_with_two_files_in_an_epoch_is_an_error(tmp_path: Path) -> None:
    for name in ("a.changes", "a.changes.gz"):
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"has both `a\.changes` and `a\.changes\.gz`"):
        epoch_files(tmp_path)
