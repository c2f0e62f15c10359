"""Proofs, and what is missing, as they are shown: text, JSON, pictures, the command line."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import tidelog
from tests.proof.checking import ProofChecker
from tidelog.cli.main import app
from tidelog.proof.gaps import BlockingRow, FailedCondition, MissingRow, OtherAggregate, OtherHead

PROGRAM = """\
.decl edge(x: symbol, y: symbol)
.input edge
.decl reach(x: symbol, y: symbol)
.decl twice(x: symbol, y: symbol)
.decl many(x: symbol, n: number)
.decl end(x: symbol)
end("z").
reach(x, y) :- edge(x, y).
reach(x, z) :- reach(x, y), edge(y, z).
twice(x, y) :- reach(x, y), reach(y, x), x < y.
many(x, n) :- edge(x, _), n = count : { reach(x, _) }, n > 1.
end(x) :- edge(_, x), !edge(x, _).
many("none", 0) :- edge("none", _).
"""
EDGES = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")]


@pytest.fixture(params=["kernel", "reference"])
def db(request: pytest.FixtureRequest) -> tidelog.Database:
    program = tidelog.Program.parse(PROGRAM, "p.dl")
    return tidelog.Database(program, facts={"edge": EDGES}, engine=request.param)


def test_a_row_that_is_used_twice_is_proved_once(db: tidelog.Database) -> None:
    proof = db.why("twice", ("a", "b"))
    assert str(proof) == dedent("""\
        twice("a", "b")
        │   by twice(x, y) :- reach(x, y), reach(y, x), x < y.  (p.dl:10:1)
        │   with x = "a", y = "b"
        ├── reach("a", "b")
        │   │   by reach(x, y) :- edge(x, y).  (p.dl:8:1)
        │   │   with x = "a", y = "b"
        │   └── edge("a", "b")   given
        ├── reach("b", "a")
        │   │   by reach(x, z) :- reach(x, y), edge(y, z).  (p.dl:9:1)
        │   │   with x = "b", z = "a", y = "c"
        │   ├── reach("b", "c")
        │   │   │   by reach(x, y) :- edge(x, y).  (p.dl:8:1)
        │   │   │   with x = "b", y = "c"
        │   │   └── edge("b", "c")   given
        │   └── edge("c", "a")   given
        └── "a" < "b\"""")
    again = tidelog.Database(
        ".decl p(x: number) .decl q(x: number) .decl r(x: number)\n"
        "q(x) :- p(x). r(x) :- q(x), q(x).",
        facts={"p": [(1,)]},
    ).why("r", (1,))
    assert [node.text for node in again.nodes()] == ["r(1)", "q(1)", "p(1)"]
    assert str(again).endswith("└── q(1)   see above")


def test_negations_aggregates_and_facts(db: tidelog.Database) -> None:
    assert str(db.why("end", ("d",))) == dedent("""\
        end("d")
        │   by end(x) :- edge(_, x), !edge(x, _).  (p.dl:12:1)
        │   with x = "d"
        ├── edge("c", "d")   given
        └── !edge("d", _)   no such row""")
    assert str(db.why("end", ("z",))) == 'end("z")   a fact of the program  (p.dl:7:1)'
    assert str(db.why("many", ("a", 4))) == dedent("""\
        many("a", 4)
        │   by many(x, n) :- edge(x, _), n = count : { reach(x, _) }, n > 1.  (p.dl:11:1)
        │   with x = "a", n = 4
        ├── edge("a", "b")   given
        ├── n = count : { reach(x, _) }   4, of 4 rows
        │       reach("a", "a")
        │       reach("a", "b")
        │       reach("a", "c")
        │       reach("a", "d")
        └── 4 > 1""")


def test_what_is_missing(db: tidelog.Database) -> None:
    assert str(db.why_not("end", ("c",))) == dedent("""\
        end("c")   is not in `end`
        ├── it is not given
        └── by end(x) :- edge(_, x), !edge(x, _).  (p.dl:12:1)
            │   with x = "c"
            ├── edge("b", "c")   holds
            └── !edge("c", _)   but there is edge("c", "a")""")
    (blocked,) = db.why_not("end", ("c",)).rules
    assert isinstance(blocked.gap, BlockingRow)
    first, second = db.why_not("reach", ("d", "a")).rules
    assert isinstance(first.gap, MissingRow)
    assert first.gap.pattern == ("d", "a")
    assert isinstance(second.gap, MissingRow)
    assert second.gap.text == 'reach("d", _)'
    (unordered,) = db.why_not("twice", ("b", "a")).rules
    assert isinstance(unordered.gap, FailedCondition)
    assert unordered.gap.with_values == '"b" < "a"'
    counted, other = db.why_not("many", ("a", 3)).rules
    assert isinstance(counted.gap, OtherAggregate)
    assert (counted.gap.value_text, counted.gap.wanted) == ("4", "3")
    assert isinstance(other.gap, OtherHead)


def test_a_row_that_is_not_missing(db: tidelog.Database) -> None:
    found = db.why_not("reach", ("a", "b"))
    assert found.is_present
    assert str(found).startswith('reach("a", "b") is in `reach`:\nreach("a", "b")\n')
    with pytest.raises(tidelog.UsageError, match="is not in `reach`"):
        db.why("reach", ("d", "a"))
    with pytest.raises(tidelog.UsageError, match="not declared"):
        db.why("rich", ("d", "a"))
    with pytest.raises(tidelog.UsageError, match="at least 1"):
        db.why_not("reach", ("d", "a"), depth=0)
    with pytest.raises(tidelog.DataError):
        db.why("reach", ("d", 3))
    assert str(db.why_not("edge", ("d", "a"))).endswith("not given, and no rule derives it")


def test_depth_follows_missing_rows_and_no_circles(db: tidelog.Database) -> None:
    found = db.why_not("twice", ("d", "e"), depth=9)
    (twice,) = found.rules
    assert isinstance(twice.gap, MissingRow)
    deeper = twice.gap.deeper
    assert deeper is not None
    assert deeper.text == 'reach("d", "e")'
    _, step = deeper.rules
    assert isinstance(step.gap, MissingRow)
    assert step.gap.text == 'reach("d", _)'
    assert step.gap.deeper is not None
    _, again = step.gap.deeper.rules
    assert isinstance(again.gap, MissingRow)
    assert again.gap.text == 'reach("d", _)'
    assert again.gap.deeper is None


def test_json(db: tidelog.Database) -> None:
    found = json.loads(json.dumps(db.why("end", ("d",)).to_json()))
    assert found["rows"][0]["steps"] == [
        {"row": 1},
        {"absent": "edge", "row": ["d", {"any": "_"}], "text": '!edge("d", _)'},
    ]
    assert found["rows"][1] == {
        "relation": "edge",
        "row": ["c", "d"],
        "text": 'edge("c", "d")',
        "origin": "given",
    }
    missing = json.loads(json.dumps(db.why_not("many", ("a", 3)).to_json()))
    assert missing["present"] is False
    assert missing["rules"][0]["gap"]["value"] == "4"
    assert json.loads(json.dumps(db.why_not("end", ("d",)).to_json()))["present"] is True


def test_pictures(db: tidelog.Database) -> None:
    for picture in (
        db.why("twice", ("a", "b")).svg(),
        db.why("many", ("a", 4)).svg(),
        db.why_not("many", ("a", 3)).svg(),
        db.why_not("edge", ("d", "a")).svg(),
        db.why_not("end", ("d",)).svg(),
    ):
        root = ElementTree.fromstring(picture)
        assert root.tag.endswith("svg")
    texts = [e.text for e in ElementTree.fromstring(db.why("end", ("d",)).svg()).iter()]
    assert 'end("d") [1]' in texts
    assert '!edge("d", _)' in texts


# --- shapes -------------------------------------------------------------------------------------


def test_a_proof_can_be_very_deep() -> None:
    length = 3000
    db = tidelog.Database(
        ".decl next(x: number, y: number) .decl from(x: number)\n"
        "from(0). from(y) :- from(x), next(x, y).",
        facts={"next": [(i, i + 1) for i in range(length)]},
    )
    proof = db.why("from", (length,))
    assert sum(1 for _ in proof.nodes()) == 2 * length + 1
    assert len(str(proof).splitlines()) < 500
    assert "more rows" in str(proof)
    assert len(proof.to_json()["rows"]) == 2 * length + 1
    assert ElementTree.fromstring(proof.svg()) is not None


STRATEGIES = """
.decl r(x: number, y: number)
.decl p(x: number, y: number)
.decl later(x: number, a: number, y: number, b: number)
.decl some(x: number)
.decl grown(x: number)
p(x, y) :- r(x, y).
p(x, z) :- p(x, y), p(y, z).
later(x, a, y, b) :- r(x, a), r(y, b), a < b.
some(x) :- later(x, _, _, _), !p(x, x).
grown(x) :- r(x, _), x < 2.
grown(y) :- grown(x), n = count : { r(z, _), z > x }, y = x + n, y < 9.
"""


@pytest.mark.parametrize(
    "strategy", [{}, {"p": "recompute"}, {"later": "theta-tree"}, {"later": "counting"}]
)
def test_strategies(strategy: dict[str, str]) -> None:
    rows = [(1, 2), (2, 3), (3, 1), (4, 9), (5, 4)]
    db = tidelog.Database(STRATEGIES, facts={"r": rows}, strategy=strategy)
    checker = ProofChecker(db.program, {"r": rows}, "kernel")
    for name in sorted(db.program.derived):
        found = list(db.view(name))
        assert found
        for row in found:
            checker.check(db.why(name, row), name, row)
        checker.check_missing(db.why_not(name, (8,) * len(row)), name, (8,) * len(row))


def test_virtual_views() -> None:
    virtual = '.view p(virtual=true) .view later(virtual=true) .view grown(strategy="recompute")'
    rows = [(1, 2), (2, 3), (3, 1), (4, 9), (5, 4)]
    db = tidelog.Database(STRATEGIES + virtual, facts={"r": rows, "p": [(7, 1)]})
    assert db.memory["later"] == 0
    checker = ProofChecker(db.program, {"r": rows, "p": [(7, 1)]}, "reference")
    for name in ("p", "later", "some"):
        found = list(db.view(name))
        assert found
        for row in found:
            checker.check(db.why(name, row), name, row)
        checker.check_missing(db.why_not(name, (8,) * len(row)), name, (8,) * len(row))


# --- the command line ---------------------------------------------------------------------------


def _run(tmp_path: Path, *words: str) -> tuple[int, str]:
    (tmp_path / "p.dl").write_text(PROGRAM)
    (tmp_path / "edge.facts").write_text("".join(f"{x}\t{y}\n" for x, y in EDGES))
    done = CliRunner().invoke(app, ["why", str(tmp_path / "p.dl"), *words, "-F", str(tmp_path)])
    return done.exit_code, done.output if done.exception is None else str(done.exception)


def test_the_command_line(tmp_path: Path) -> None:
    code, text = _run(tmp_path, "reach", '"a", "c"')
    assert code == 0
    assert text.startswith('reach("a", "c")\n│   by reach(x, z)')
    code, text = _run(tmp_path, "reach", '"d", "a"', "--not", "--depth", "2", "--json")
    assert code == 0
    assert json.loads(text)["rules"][1]["gap"]["because"]["text"] == 'reach("d", _)'
    picture = tmp_path / "why.svg"
    assert _run(tmp_path, "many", '"a", 4', "--svg", str(picture)) == (0, "")
    assert ElementTree.fromstring(picture.read_text()) is not None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ('"a", 3', "is a number literal"),
        ('"a"', "is not a row of reach(x: symbol, y: symbol)"),
        ('"a", cat("b", "c")', "values are constants"),
        ('"d", "a"', "is not in `reach`"),
    ],
)
def test_wrong_rows_on_the_command_line(tmp_path: Path, values: str, message: str) -> None:
    code, text = _run(tmp_path, "reach", values)
    assert code != 0
    assert message in text
