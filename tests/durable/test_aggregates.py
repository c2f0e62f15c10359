"""Aggregates of all classes, written to files and read back: what is kept of them goes on."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.seeds import seeded
from tidelog.database.database import kernel_of
from tidelog.reference import evaluate

PROGRAM = """
    .decl r(g: symbol, i: number, v: number, w: float)
    .decl summed(g: symbol, n: number, s: number, d: number, m: float, t: float)
    summed(g, n, s, d, m, t) :-
        r(g, _, _, _),
        n = count : { r(g, _, _, _) }, s = sum v : { r(g, _, v, _) },
        d = count v : { r(g, _, v, _) }, m = mean v : { r(g, _, v, _) },
        t = total w : { r(g, _, _, w) }.
    .decl ends(g: symbol, a: number, b: symbol)
    ends(g, a, b) :- r(g, _, _, _), a = max v : { r(g, _, v, _) }, b = min h : { r(h, _, _, _) }.
    .decl values(g: symbol, vs: set(number))
    values(g, s) :- r(g, _, _, _), s = setof v : { r(g, _, v, _) }.
    .decl same(g: symbol, h: symbol)
    same(g, h) :- values(g, s), values(h, s), g < h.
    .decl sets(s: set(set(number)))
    sets(t) :- t = setof s : { values(_, s) }.
    .decl all(text: symbol)
    all(t) :- t = concat g : { r(g, _, _, _) }.
"""


def _row(rng: random.Random) -> tuple[Any, ...]:
    return (
        rng.choice("abcd"),
        rng.randrange(6),
        rng.randrange(4),
        rng.choice((0.1, 1e300, -1e300)),
    )


@pytest.mark.parametrize("number", range(6))
def test_epochs_before_and_after_an_opening(number: int, tmp_path: Path) -> None:
    rng = seeded("aggregates", number)
    program = tidelog.Program.parse(PROGRAM)
    given: set[tuple[Any, ...]] = set()
    for _ in range(6):
        with tidelog.Database(program, path=tmp_path) as db:
            assert db.opened is not None
            assert not db.opened.rebuilt
            for _ in range(rng.randrange(4)):
                come = {_row(rng) for _ in range(rng.randrange(6))}
                go = set(rng.sample(sorted(given), min(len(given), rng.randrange(5)))) - come
                with db.transaction() as tx:
                    tx.insert("r", come)
                    tx.delete("r", go)
                given = (given - go) | come
            kernel_of(db).check()
            expected = evaluate(program, {"r": given})
            for name in program.relations:
                assert set(db.view(name)) == expected[name], name
            if rng.random() < 0.5:
                db.snapshot()
    reader = tidelog.open_reader(tmp_path)
    for name in program.relations:
        assert set(reader.view(name)) == expected[name], name
