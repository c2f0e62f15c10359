"""`tidelog explain --dot` and `--svg`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from unittest import mock
from xml.etree import ElementTree

import pytest

from tests.plan.theta.queries import query, random_query
from tests.seeds import seeded
from tidelog.cli.main import main
from tidelog.plan.theta.dot import dot
from tidelog.plan.theta.picture import PictureNode, tree_picture
from tidelog.plan.theta.svg import svg

ROOT = Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"
PAGE = ROOT / "docs" / "command-line.md"

MIXED = """
.decl e(x: number, y: number)
.decl two(x: number, z: number)
two(x, z) :- e(x, y), e(y, z), x < z.
two(x, x) :- e(x, x).
.decl reach(x: number, y: number)
reach(x, y) :- two(x, y).
reach(x, z) :- reach(x, y), two(y, z).
.decl far(x: number)
far(x) :- e(x, _), !reach(x, x).
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.dl"
    path.write_text(MIXED)
    return path


def run(*args: object) -> int:
    with mock.patch.object(sys, "argv", ["tidelog", *map(str, args)]):
        try:
            main()
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def texts(picture: str, kind: str) -> list[str]:
    found = ElementTree.fromstring(picture).iter(f"{SVG}text")
    return [node.text or "" for node in found if node.get("class") == kind]


def test_a_picture_of_the_joins_of_a_view(program: Path, tmp_path: Path) -> None:
    target = tmp_path / "two.svg"
    assert run("explain", program, "two", "--svg", target) == 0
    picture = target.read_text()
    assert texts(picture, "predicate") == ["x < z"]
    assert {"e(x, y)", "e(y, z)"} <= set(texts(picture, "text"))
    assert texts(picture, "rule") == ["two(x, z) :- e(x, y), e(y, z), x < z."]


def test_a_graph_of_the_joins_of_a_view(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", program, "two", "--dot") == 0
    said = capsys.readouterr().out
    assert said.count('label="x < z"') == 1
    assert said.count("shape=box") == 2


def test_a_graph_of_the_strata(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", program, "--dot") == 0
    said = capsys.readouterr().out
    assert '  "e" [shape=box];' in said
    assert '  "reach" -> "far" [style=dashed];' in said
    assert '  "reach" -> "reach";' in said
    assert "cluster_" in said


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["far", "--dot"], "no rule of `far` is a join"),
        (["e", "--dot"], "no rule of `e` is a join"),
        (["--svg", "x.svg"], "`--svg` draws the joins of one view"),
        (["tow", "--dot"], "did you mean `two`?"),
    ],
)
def test_what_cannot_be_drawn(
    program: Path, capsys: pytest.CaptureFixture[str], args: list[str], message: str
) -> None:
    assert run("explain", program, *args) != 0
    assert message in capsys.readouterr().err


def test_the_picture_in_the_docs_is_what_the_command_draws(tmp_path: Path) -> None:
    found = re.search(r"```datalog file=tested.dl\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    path = tmp_path / "tested.dl"
    path.write_text(found[1])
    assert run("explain", path, "tested", "--svg", tmp_path / "join-tree.svg") == 0
    drawn = (tmp_path / "join-tree.svg").read_text()
    assert drawn == (ROOT / "docs" / "images" / "join-tree.svg").read_text()


# --- layout ---------------------------------------------------------------------------------------


def boxes(picture: str) -> list[tuple[float, float, float, float]]:
    """Return left, top, right and bottom of the nodes."""
    found = []
    for rect in ElementTree.fromstring(picture).iter(f"{SVG}rect"):
        if rect.get("class") in ("box", "node"):
            x, y, w, h = (float(rect.get(key, "")) for key in ("x", "y", "width", "height"))
            found.append((x, y, x + w, y + h))
    return found


def count_nodes(node: PictureNode) -> int:
    return 1 + sum(map(count_nodes, node.children))


def test_no_two_nodes_overlap_and_all_are_on_the_page() -> None:
    rng = seeded("pictures")
    drawn = 0
    for _ in range(200):
        picture = tree_picture('p(x) :- r("<&>", x).', random_query(rng))
        text = svg([picture])
        found = boxes(text)
        if picture.root is None:
            assert not found
            continue
        drawn += 1
        assert len(found) == count_nodes(picture.root)
        root = ElementTree.fromstring(text)
        width, height = float(root.get("width", "")), float(root.get("height", ""))
        for place, (left, top, right, bottom) in enumerate(found):
            assert left >= 0
            assert right <= width
            assert top >= 0
            assert bottom <= height
            for other in found[:place]:
                beside = left >= other[2] or right <= other[0]
                assert beside or top >= other[3] or bottom <= other[1]
        assert dot([picture]).count(" -- ") == len(found) - 1
    assert drawn > 50


def test_a_rule_without_a_tree_says_so() -> None:
    triangle = tree_picture("t(x) :- ..", query("xy yz zx", "xyz"))
    text = svg([triangle])
    assert texts(text, "verdict") == ["cyclic through its equal variables: there is no join tree"]
    assert "n0" not in dot([triangle])
