"""What an opening leaves in files until it is needed: runs, sums, symbols and records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tidelog
from tests.databases import durable
from tests.samples import until
from tests.seeds import seeded
from tidelog.database.database import kernel_of
from tidelog.durable import manifest as manifests
from tidelog.durable.extents import Arrays, Extent
from tidelog.durable.files import Files
from tidelog.durable.saved import SavedSnapshot, load_index
from tidelog.engine import state
from tidelog.engine.kernel import KernelEngine
from tidelog.reference import evaluate
from tidelog.store.codec import Codec, Dictionary
from tidelog.store.kept_items import KeptItems
from tidelog.store.lazy_run import LazyRun

TWO = """
.decl a(x: number, y: number)
.decl a_sums(x: number, s: number)
a_sums(x, s) :- a(x, _), s = sum y : { a(x, y) }.
.decl b(x: number, s: symbol)
.decl b_twice(x: number, y: number)
b_twice(x, y) :- b(x, s), b(y, s).
"""
FACTS = {
    "a": {(i, j) for i in range(40) for j in range(3)},
    "b": {(i, f"b{i % 30}") for i in range(90)},
}


def engine_of(db: tidelog.Database) -> KernelEngine:
    return kernel_of(db)


def saved_in(folder: Path) -> SavedSnapshot:
    files = Files(folder)
    return load_index(files, manifests.read(files).snapshot)


def flip(folder: Path, extent: Extent) -> None:
    """Change a bit in the middle of an array."""
    path = folder / extent.file
    data = bytearray(path.read_bytes())
    data[extent.at + extent.nbytes // 2] ^= 16
    path.write_bytes(data)


def change(db: tidelog.Database, name: str, come: Any = (), go: Any = ()) -> None:
    with db.transaction() as tx:
        tx.insert(name, list(come))
        tx.delete(name, list(go))


def compare(db: tidelog.Database, facts: dict[str, set[Any]]) -> None:
    expected = evaluate(db.program, facts)
    for name, rows in expected.items():
        assert set(db.view(name)) == rows, name
    engine_of(db).check()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the arrays that are read, by their file."""
    found: Counter[str] = Counter()
    read = Arrays.read

    def counted(self: Arrays, extent: Extent) -> Any:
        found[extent.file] += 1
        return read(self, extent)

    monkeypatch.setattr(Arrays, "read", counted)
    return found


def test_opening_reads_no_array(tmp_path: Path, reads: Counter[str]) -> None:
    tidelog.Database(TWO, path=tmp_path, facts=FACTS).close()
    with tidelog.Database(TWO, path=tmp_path) as db:
        assert not reads
        assert db.memory["a"] > 0
        assert not reads, "telling the size reads nothing"
        change(db, "a", come=[(1, 9)])
        touched = sum(reads.values())
        assert touched
        runs = engine_of(db).catalog.relations["b"].primary.runs
        assert all(isinstance(run, LazyRun) for run in runs)
        compare(db, {**FACTS, "a": FACTS["a"] | {(1, 9)}})
        assert sum(reads.values()) > touched
        assert not any(isinstance(run, LazyRun) for run in runs)


@pytest.mark.parametrize("part", ["words", "sums"])
def test_damage_is_noticed_when_it_is_touched(part: str, tmp_path: Path) -> None:
    tidelog.Database(TWO, path=tmp_path, facts=FACTS).close()
    saved = {r.name: r for r in saved_in(tmp_path).relations if not r.is_given}
    if part == "sums":
        (result,) = (relation for relation in saved.values() if relation.sums)
        flip(tmp_path, result.sums[0].heads)
    else:
        flip(tmp_path, saved["a"].orders[0, 1][0].words)
    with tidelog.Database(TWO, path=tmp_path) as db:
        change(db, "b", come=[(1000, "b1")])
        for _ in range(2):
            with pytest.raises(tidelog.StateError, match="is damaged at byte"):
                change(db, "a", come=[(1, 9)])
            assert db.epoch == 1
        assert (1000, 1) in set(db.view("b_twice"))
        assert len(db.view("a_sums")) == 40
        if part == "words":
            with pytest.raises(tidelog.StateError, match="is damaged at byte"):
                list(db.view("a"))
        change(db, "b", go=[(1000, "b1")])
    with tidelog.Database(TWO, path=tmp_path) as db:
        assert db.epoch == 2


def test_what_a_commit_merges_is_read_while_it_can_be_undone(tmp_path: Path) -> None:
    """An order that nobody looks at is merged by a commit: its damage must not come too late."""
    facts = {"b": {(i, f"b{i % 30}") for i in range(3000)}}
    tidelog.Database(TWO, path=tmp_path, facts=facts).close()
    relation = next(r for r in saved_in(tmp_path).relations if r.name == "b")
    (other,) = (runs for order, runs in relation.orders.items() if order != (0, 1))
    flip(tmp_path, other[0].words)
    with tidelog.Database(TWO, path=tmp_path) as db:
        stored = engine_of(db).catalog.given["b"]
        index = next(i for order, i in stored.indexes.items() if order != (0, 1))
        stored.add(stored.pack(np.array([[4000], [0]])), None, None)
        index.read_for_commit()  # one row is not merged into so many
        assert isinstance(index.runs[0], LazyRun)
        stored.abort()
        rows = np.array([np.arange(4000, 5000), np.zeros(1000, np.int64)])
        stored.add(stored.pack(rows), None, None)
        with pytest.raises(tidelog.StateError, match="is damaged at byte"):
            stored.read_for_commit()
        stored.abort()


def test_untouched_runs_stay_in_their_files(
    tmp_path: Path, reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LARGE", 1)
    tidelog.Database(TWO, path=tmp_path, facts=FACTS).close()
    before = {r.name: r for r in saved_in(tmp_path).relations if not r.is_given}
    facts = {**FACTS, "b": FACTS["b"] | {(7, "new")}}
    with tidelog.Database(TWO, path=tmp_path) as db:
        change(db, "b", come=[(7, "new")])
        reads.clear()
        db.snapshot()
        assert not reads, "a snapshot reads nothing of what it leaves where it is"
        change(db, "a", go=[(1, 1)])
    after = {r.name: r for r in saved_in(tmp_path).relations if not r.is_given}
    assert after["a"] == before["a"]
    assert after["b"] != before["b"]
    assert any(relation.sums for relation in after.values())
    facts["a"] = FACTS["a"] - {(1, 1)}
    for _ in range(4):  # files that hold little of what is used are not used for ever
        with tidelog.Database(TWO, path=tmp_path) as db:
            compare(db, facts)
            db.snapshot()
    with tidelog.Database(TWO, path=tmp_path) as db:
        compare(db, facts)


SUMS = """
.decl r(g: symbol, i: number, v: number, w: float)
.decl sums(g: symbol, n: number, s: number, m: float, t: float)
sums(g, n, s, m, t) :- r(g, _, _, _), n = count : { r(g, _, _, _) }, s = sum v : { r(g, _, v, _) },
    m = mean v : { r(g, _, v, _) }, t = total w : { r(g, _, _, w) }.
"""


@pytest.mark.parametrize("large", [1, 1 << 20])
@pytest.mark.parametrize("number", range(4))
def test_sums_in_snapshots_that_take_many_epochs(
    number: int, large: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups come, change and go while a snapshot of them is written."""
    monkeypatch.setattr(state, "LARGE", large)
    rng = seeded("sums in snapshots", number)
    program = tidelog.Program.parse(SUMS)
    settings = {"snapshot_bytes": 1500, "step_bytes": 300, "segment_bytes": 4000}
    given: set[Any] = set()
    snapshots = set()
    for _ in until(lambda: len(snapshots) > 1, least=5, most=60):
        with durable(program, tmp_path, **settings) as db:
            for _ in range(rng.randrange(1, 25)):
                come = {
                    (
                        f"g{rng.randrange(30)}",
                        rng.randrange(3),
                        rng.choice((0, 1, 10**9, 10**17)),
                        rng.choice((0.1, 1e300, -1e300, float("inf"), 1e-300)),
                    )
                    for _ in range(rng.randrange(8))
                }
                go = set(rng.sample(sorted(given), min(len(given), rng.randrange(9)))) - come
                with db.transaction() as tx:
                    tx.insert("r", come)
                    tx.delete("r", go)
                given = (given - go) | come
            compare(db, {"r": given})
            assert db.state is not None
            snapshots.add(db.state.snapshot_epoch)
    assert len(snapshots) > 1, "no snapshot was written on the way"
    with tidelog.Database(program, path=tmp_path) as db:
        compare(db, {"r": given})


def test_sums_without_any_group(tmp_path: Path) -> None:
    """A group is asked for when there is none: a random program has found it."""
    program = """
        .decl ar(c0: number, c1: symbol)
        .decl cr(c0: number, c1: number)
        .decl dr(c0: symbol, c1: number, c2: number)
        .decl er()
        er() :- dr(v1, v2, _), v5 = sum w2 : { cr(v3, 4), cr(w1, w2), !ar(v3, v1), v1 >= "a" },
            v5 < 50, -50 < v5.
    """
    tidelog.Database(program, path=tmp_path).close()
    facts: dict[str, set[Any]] = {"dr": {("a", 0, 1023)}, "cr": {(1, 4)}}
    with tidelog.Database(program, path=tmp_path) as db:
        change(db, "dr", come=facts["dr"])
        compare(db, {"dr": facts["dr"]})
        change(db, "cr", come=facts["cr"])
        compare(db, facts)


def test_sums_of_an_older_snapshot_are_added_up(tmp_path: Path) -> None:
    tidelog.Database(TWO, path=tmp_path, facts=FACTS).close()
    load = load_index

    def without_sums(files: Files, ref: manifests.SnapshotRef) -> SavedSnapshot:
        saved = load(files, ref)
        for relation in saved.relations:
            object.__setattr__(relation, "sums", ())
        return saved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidelog.persist.state_writer.load_index", without_sums)
        with tidelog.Database(TWO, path=tmp_path) as db:
            change(db, "a", come=[(1, 9)])
            compare(db, {**FACTS, "a": FACTS["a"] | {(1, 9)}})


LISTS = """
.type List = [head: symbol, tail: List]
.decl list(l: List)
.decl heads(s: symbol)
heads(s) :- list([s, _]).
"""


def list_of(*items: str) -> Any:
    made: Any = None
    for item in reversed(items):
        made = (item, made)
    return made


def test_symbols_and_records_are_made_when_they_are_wanted(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(200)] + ["", "é🙂", "日本"]
    rows = [(list_of(word, "x", "y"),) for word in words] + [(None,)]
    with tidelog.Database(LISTS, path=tmp_path, facts={"list": rows[:100]}) as db:
        change(db, "list", come=rows[100:])
        db.snapshot()  # entries in two parts
    with tidelog.Database(LISTS, path=tmp_path) as db:
        codec = engine_of(db).catalog.codec
        kept = codec.symbols.items
        assert isinstance(kept, KeptItems)
        assert (("é🙂", ("x", ("y", None))),) in db.view("list")
        assert (("w1", ("x", None)),) not in db.view("list")
        assert ("nobody",) not in db.view("heads")
        assert ("",) in db.view("heads")
        assert isinstance(kept, KeptItems), "few were asked for"
        size = codec.size
        change(db, "list", come=[(list_of("w5"),), (list_of("new"),)], go=[(list_of("w7"),)])
        assert codec.size == size + 4  # three lists, and `new`
        expected = evaluate(db.program, {"list": {*rows, (list_of("w5"),), (list_of("new"),)}})
        assert set(db.view("list")) == expected["list"]
        assert codec.symbols.items is kept, "whoever has a hold of it has the entries"
        assert not isinstance(kept, KeptItems), "many were asked for"
        assert set(db.view("heads")) == expected["heads"]
        change(db, "list", come=[(list_of("w8", "w9"),)])
        expected = evaluate(db.program, {"list": expected["list"] | {(list_of("w8", "w9"),)}})
        assert set(db.view("heads")) == expected["heads"]
        assert len(set(codec.symbols.items)) == len(codec.symbols.items)


class _Numbers:
    """Numbers as text, one digit each: pieces of a byte."""

    content = np.frombuffer(b"0123456789", np.uint8).copy()
    ends = np.arange(1, 11)

    def made(self, piece: int) -> str:
        return str(piece)

    def all_made(self) -> list[str]:
        return [str(i) for i in range(10)]

    def bytes_of(self, item: str) -> bytes:
        return item.encode()


@pytest.mark.parametrize("number", range(20))
def test_a_table_with_entries_in_files_is_like_one_without(number: int) -> None:
    rng = seeded("entries in files", number)
    kept, plain = Dictionary(), Dictionary()
    kept.keep(10, _Numbers)
    plain.extend([str(i) for i in range(10)])
    held = kept.items
    for _ in range(rng.randrange(1, 12)):
        what, item = rng.randrange(5), str(rng.randrange(14))
        number = rng.randrange(len(plain))
        match what:
            case 0:
                assert kept.number(item) == plain.number(item)
            case 1:
                assert kept.find(item) == plain.find(item)
            case 2:
                assert held[number] == plain.items[number]
            case 3:
                assert kept.entries(number, len(plain)) == plain.entries(number, len(plain))
            case 4:
                new = [f"n{len(plain)}", f"m{len(plain)}"]
                kept.extend(new)
                plain.extend(new)
        assert len(kept) == len(plain)
    assert list(held) == list(plain.items)


def test_a_decoder_that_was_made_before(tmp_path: Path) -> None:
    codec = Codec({})
    decode = codec.decoder(tidelog.Program.parse(TWO).relations["b"].columns[1].type)
    codec.symbols.keep(10, _Numbers)
    assert decode(7) == "7"
