"""The files of committed epochs: their format, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.errors import StateError
from tidelog.io.offsets import RowCounts
from tidelog.sharding.manifest import Committed, Epochs

EPOCH = Committed(
    epoch=7,
    identity="i",
    program=".decl p(x: number)",
    program_name="p.dl",
    sides=(2,),
    plan=("p@by_0 as p",),
    shards=(),
    offsets={"files": {"a.csv": "10:1.5"}},
    counts={"files": RowCounts(3, 2, 1)},
    offsets_file="memory/x.json",
    offsets_epoch=5,
    views={"p": ("changes/y.arrow",)},
    watched=("p",),
)
# States of earlier versions have exactly these keys.
FILE = (
    "tidelog epoch 1 e388fa54\n"
    '{"epoch":7,"identity":"i","program":".decl p(x: number)","program_name":"p.dl","sides":[2],'
    '"plan":["p@by_0 as p"],"shards":[],"marks":{"files":{"a.csv":"10:1.5"}},'
    '"counts":{"files":{"received":3,"accepted":2,"quarantined":1}},"memory":"memory/x.json",'
    '"memory_epoch":5,"views":{"p":["changes/y.arrow"]},"watched":["p"],"view_rows":{}}'
)


def committed(tmp_path: Path) -> tuple[Epochs, Path]:
    epochs = Epochs(tmp_path)
    epochs.make_folders(2)
    epochs.commit(EPOCH)
    return epochs, tmp_path / "epochs" / "000000000007.json"


def test_the_format_of_a_file(tmp_path: Path) -> None:
    epochs, file = committed(tmp_path)
    assert file.read_text() == FILE
    assert epochs.numbers() == [7]
    assert epochs.read(7) == EPOCH


def test_an_epoch_is_committed_once(tmp_path: Path) -> None:
    epochs, file = committed(tmp_path)
    with pytest.raises(StateError, match=r"epoch 7 of .* was committed by another process"):
        epochs.commit(EPOCH)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    epochs, file = committed(tmp_path)
    file.write_text(FILE.replace('"epoch":7', '"epoch":8'))
    with pytest.raises(StateError, match="its checksum is wrong"):
        epochs.read(7)
