"""Triggers of pipelines: in both placements, at least once, with ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.database.receiving import receiver
from tests.spark.piping import PLACEMENTS, PROGRAM, Folder
from tidelog.errors import DataError, ProgramError, UsageError
from tidelog.spark import Pipeline, Trigger
from tidelog.spark.pipeline_file import read_pipeline_file

EPOCHS = ["+,1,2\n+,2,3\n", "-,2,3\n+,2,4\n", "+,9,9\n"]


def pipeline(folder: Folder, *triggers: Trigger, **keys: Any) -> Pipeline:
    source = folder.source("edge", "csv", mode="changes")
    keys = {**folder.placement, **keys}
    return Pipeline(
        PROGRAM, state=folder.path / "state", sources=[source], triggers=triggers, **keys
    )


def run(spark: Any, folder: Folder, number: int, *triggers: Trigger, **keys: Any) -> None:
    folder.write(f"edge/{number}.csv", EPOCHS[number])
    with pipeline(folder, *triggers, **keys) as running:
        running.run(spark)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_events_of_each_epoch(spark: Any, tmp_path: Path, placement: str) -> None:
    folder = Folder(tmp_path)
    folder.placement = PLACEMENTS[placement]
    path = tmp_path / "reach.jsonl"
    with receiver() as received:
        triggers = [
            Trigger("reach", where="y > 3", webhook=received.url, secret="s", name="far"),
            Trigger("reach", "both", path=str(path), name="all"),
            Trigger("reach", "-", where="x = 1", path=str(tmp_path / "less.jsonl"), name="less"),
        ]
        for number in range(3):
            run(spark, folder, number, *triggers)
        # As if the process had died before it could note what it has delivered.
        memory = tmp_path / "state" / "sinks" / "far.json"
        memory.write_text(json.dumps({**json.loads(memory.read_text()), "epoch": 1}))
        with pipeline(folder, *triggers) as running:
            running.run(spark)
    found = received.messages
    assert [(m["epoch"], m["inserted"], m["deleted"]) for m in found] == [
        (1, [{"x": 1, "y": 4}, {"x": 2, "y": 4}], []),
        (2, [{"x": 9, "y": 9}], []),
        (2, [{"x": 9, "y": 9}], []),
    ]
    assert found[1] == found[2]
    assert received.ids[0] != received.ids[1] == received.ids[2]
    assert all("Tidelog-Signature" in headers for headers, _ in received.requests)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((r["epoch"], r["op"], r["row"]["x"], r["row"]["y"]) for r in lines) == [
        (0, "+", 1, 2), (0, "+", 1, 3), (0, "+", 2, 3), (1, "+", 1, 4), (1, "+", 2, 4),
        (1, "-", 1, 3), (1, "-", 2, 3), (2, "+", 9, 9),
    ]  # fmt: skip
    less = [json.loads(line) for line in (tmp_path / "less.jsonl").read_text().splitlines()]
    assert [(r["epoch"], r["op"], r["row"]) for r in less] == [(1, "-", {"x": 1, "y": 3})]
    for file in (tmp_path / "state").rglob("*"):
        if file.is_file():
            assert b"sesame" not in file.read_bytes()


def test_a_server_that_fails_stops_nothing_and_gets_all_later(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    path = tmp_path / "all.jsonl"
    with receiver(500) as received:
        hook = Trigger("reach", webhook=received.url, name="hook")
        lines = Trigger("reach", path=str(path), name="lines")
        for number in range(2):
            with pytest.raises(DataError, match="status 500") as error:
                run(spark, folder, number, hook, lines, retry=0, retry_seconds=0.01)
            assert "sesame" not in str(error.value)
        assert len(path.read_text().splitlines()) == 5
        failed = len(received.requests)
        received.answer_from_now_on(200)
        run(spark, folder, 2, hook, lines, retry=0)
        delivered = received.messages[failed:]
        assert len(delivered) == len({message["id"] for message in delivered})
        assert [message["epoch"] for message in delivered] == sorted(
            message["epoch"] for message in delivered
        )
        rows = [(r["x"], r["y"]) for message in delivered for r in message["inserted"]]
        assert rows.count((9, 9)) == 1
        assert {(1, 2), (1, 4), (2, 4)} <= set(rows)


def test_a_new_trigger_begins_at_the_current_epoch(spark: Any, tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    run(spark, folder, 0)
    path = tmp_path / "all.jsonl"
    run(spark, folder, 1, Trigger("reach", "both", path=str(path)))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {row["epoch"] for row in rows} == {1}
    assert len(rows) == 4


FILE = """
[pipeline]
program = "p.dl"

[[trigger]]
view = "reach"
"""


def read(tmp_path: Path, more: str) -> Pipeline:
    (tmp_path / "p.dl").write_text(PROGRAM)
    (tmp_path / "p.toml").write_text(FILE + more)
    return Pipeline.from_file(tmp_path / "p.toml")


def test_the_trigger_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", "open sesame")
    monkeypatch.setenv("HOOK", "https://example.org/hook?token=sesame")
    text = 'on = "both"\nwebhook = "${HOOK}"\nsecret = "${HOOK_SECRET}"\nwhere = "x > 3"\n'
    made = read(tmp_path, text)
    (sink,) = made.sinks
    assert sink.spec.trigger is not None
    assert sink.spec.trigger.secret == "open sesame"
    spec = read_pipeline_file(tmp_path / "p.toml")
    assert "sesame" not in repr(spec) + repr(made.declaration)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('on = "x"\npath = "a"', r"\[\[trigger\]\] number 1: `on` must be one of"),
        ("", "has a `webhook`, a `path`, or a `format`"),
        ('webhook = "http://example.org"', "must begin with https://"),
        ('webhook = "https://example.org"\nsecret = "plain"', "must come from the environment"),
        ('path = "a"\nwhere = "z > 3"', "variable `z` is not bound"),
        ('path = "a"\nform = "b"', "unknown key `form`"),
    ],
)
def test_mistakes_in_a_file(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises((UsageError, ProgramError), match=message):
        read(tmp_path, more)
