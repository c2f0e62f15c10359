"""Every page does what it shows. How blocks are marked is told in tests/docs/pages.py."""

from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, Block, Runner, blocks_of

# Pages of prose, which have nothing to execute.
PROSE = {"CONTRIBUTING.md"}


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_page(page: Path, tmp_path: Path) -> None:
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    if name_of(page) not in PROSE:
        assert any(block.language != "sh" for block in blocks), "nothing on this page is executed"
    for shown in Runner(tmp_path).run(blocks):
        place = f"{name_of(page)}:{shown.block.line}"
        assert shown.block.text == shown.happens, (
            f"{place}: something else happens\n"
            f"if it should: .venv/bin/python tests/docs/pages.py {name_of(page)}"
        )


def run(tmp_path: Path, *blocks: tuple[str, str]) -> list[bool]:
    made = [Block(words.split(), 1, text.split("\n")) for words, text in blocks]
    return [shown.is_right for shown in Runner(tmp_path).run(made)]


DECL = ".decl p(x: number)\np(1)."


@pytest.mark.parametrize(
    "blocks",
    [
        [("datalog", DECL)],
        [("datalog shows=p", DECL), ("tsv", "1")],
        [("datalog file=a.dl", DECL), ("console", "$ cat a.dl\n" + DECL)],
        [("datalog file=a.dl", DECL), ("console", "$ tidelog check a.dl\n...")],
        [("tsv file=d/p.facts", "1"), ("console", "$ ls d\np.facts")],
        [("python", "x = 1"), ("python", ">>> x\n1")],
        [("sh no-run", "make test")],
    ],
)
def test_the_runner_takes(blocks: list[tuple[str, str]], tmp_path: Path) -> None:
    assert all(run(tmp_path, *blocks))


@pytest.mark.parametrize(
    "blocks",
    [
        [("datalog shows=p", DECL), ("tsv", "2")],
        [("datalog file=a.dl", DECL), ("console", "$ cat a.dl\n.decl p(x: number)")],
        [("datalog error", ".decl p(x: nummer)"), ("text", "wrong")],
    ],
)
def test_the_runner_sees_a_difference(blocks: list[tuple[str, str]], tmp_path: Path) -> None:
    assert not all(run(tmp_path, *blocks))


@pytest.mark.parametrize(
    "blocks",
    [
        [("", "anything")],
        [("sql", "SELECT 1")],
        [("text", "a result of nothing")],
        [("datalog", ".decl p(x: nummer)")],
        [("datalog error", DECL), ("text", "")],
        [("datalog error", ".decl p(x: nummer)")],
        [("datalog fails", DECL), ("text", "")],
        [("datalog shows=p", DECL)],
        [("python", ">>> 1 + 1\n3")],
        [("sh no-run", "tidelog check a.dl")],
        [("sh", "make test")],
        [("console", "$ tidelog check nothing.dl\n...")],
        [("console", "$ cat a | grep b")],
        [("console", "$ rm a")],
    ],
)
def test_the_runner_refuses(blocks: list[tuple[str, str]], tmp_path: Path) -> None:
    with pytest.raises((AssertionError, FileNotFoundError)):
        run(tmp_path, *blocks)
