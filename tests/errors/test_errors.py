"""What a wrong program is told, word for word.

Each mistake is a small program `<mistake>.dl`, whose first line is its title, and the message it
must give, `<mistake>.txt`. A program with more than one mistake says so: `// errors: 2`.

After a change of wording, write the messages anew, and read the difference before you keep it:

    TIDELOG_UPDATE_GOLDENS=1 python -m pytest tests/errors
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog import Diagnostic, Program, ProgramError

HERE = Path(__file__).resolve().parent
FRONT_END = HERE.parents[1] / "src" / "tidelog"
MISTAKES = sorted(HERE.glob("*.dl"))
UPDATE = bool(os.environ.get("TIDELOG_UPDATE_GOLDENS"))

# A second mistake behind these cannot be seen: they swallow the rest of the program, or the rules
# that follow a component are not read.
SWALLOW_THE_REST = {"component-not-closed", "ifdef-without-endif", "unterminated-comment"}
LAST_MISTAKE = '\n.decl last_one(x: number)\nlast_one("a string").\n'


def diagnose(text: str, name: str = "test.dl") -> tuple[Diagnostic, ...]:
    """Return what is wrong with a program."""
    try:
        Program.parse(text, name)
    except ProgramError as error:
        return error.diagnostics
    return ()


def golden(mistake: Path) -> str:
    return mistake.with_suffix(".txt").read_text(encoding="utf-8")


def number_of_mistakes(text: str) -> int:
    found = re.search(r"^// errors: (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 1


def by_name(path: Path) -> str:
    return path.stem


every_mistake = pytest.mark.parametrize("mistake", MISTAKES, ids=by_name)


@every_mistake
def test_message(mistake: Path) -> None:
    with pytest.raises(ProgramError) as caught:
        Program.parse(mistake.read_text(encoding="utf-8"), mistake.name)
    message = f"{caught.value}\n"
    if UPDATE:
        mistake.with_suffix(".txt").write_text(message, encoding="utf-8")
        return
    assert message == golden(mistake)


@every_mistake
def test_one_mistake_gives_one_message_with_a_place_and_help(mistake: Path) -> None:
    text = mistake.read_text(encoding="utf-8")
    assert text.startswith("// title: ")
    lines = golden(mistake).splitlines()
    errors = [line for line in lines if re.match(rf"{mistake.name}:\d+:\d+: error: ", line)]
    assert len(errors) == number_of_mistakes(text)
    assert len([line for line in lines if line.startswith("  help: ")]) == len(errors)


@every_mistake
def test_the_caret_stands_under_text(mistake: Path) -> None:
    text = mistake.read_text(encoding="utf-8")
    for found in diagnose(text, mistake.name):
        assert found.span is not None
        line = found.span.source.line(found.span.line)
        start = found.span.column - 1
        # Something that is missing is reported right behind what it should follow.
        assert line[start : start + 1].strip() or line[start - 1].strip()


@pytest.mark.parametrize(
    "mistake", [m for m in MISTAKES if m.stem not in SWALLOW_THE_REST], ids=by_name
)
def test_a_mistake_does_not_hide_the_next_statement(mistake: Path) -> None:
    text = mistake.read_text(encoding="utf-8")
    *before, last = diagnose(text + LAST_MISTAKE, mistake.name)
    assert "\n".join(d.render() for d in before) + "\n" == golden(mistake)
    assert last.message.startswith("column `x` of `last_one` is a `number`")


def test_every_golden_has_its_program() -> None:
    assert {path.stem for path in HERE.glob("*.txt")} == {path.stem for path in MISTAKES}


def test_there_are_many_mistakes() -> None:
    titles = [path.read_text(encoding="utf-8").splitlines()[0] for path in MISTAKES]
    assert len(titles) >= 60
    assert len(set(titles)) == len(titles)


# --- codes ---------------------------------------------------------------------------------------


def codes_in(tree: ast.AST) -> Iterator[str]:
    """Yield the diagnostic codes that a module of the front end reports."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="error" | "_error"),
                args=[ast.Constant(value=str(code)), *_],
            ):
                yield code
            case ast.keyword(arg="code", value=ast.Constant(value=str(code))):
                yield code
            case ast.AnnAssign(target=ast.Name(id="code"), value=ast.Constant(value=str(code))):
                yield code


def test_every_code_has_a_golden() -> None:
    used = {
        code
        for folder in ("lang", "logic")
        for path in (FRONT_END / folder).glob("*.py")
        for code in codes_in(ast.parse(path.read_text(encoding="utf-8")))
    }
    shown = {
        code
        for mistake in MISTAKES
        for code in re.findall(r" error: .* \[([a-z-]+)\]$", golden(mistake), re.MULTILINE)
    }
    assert "type-mismatch" in used and "unterminated-string" in used and "syntax" in used
    assert used - shown == set(), "codes that no program here is told"
    assert shown - used == set(), "codes that the search in the source does not see"


@pytest.mark.parametrize(
    "mistake",
    [
        "user-functor-declaration",
        "counter",
        "autoinc",
        "limitsize",
        "include-directive",
        "include-preprocessor",
        "lattice",
        "once",
        "disjunction-in-aggregate",
    ],
)
def test_refused_constructs_are_called_not_supported(mistake: str) -> None:
    assert " not supported [not-supported]\n" in golden(HERE / f"{mistake}.dl")


# --- positions and order -------------------------------------------------------------------------

FIVE_MISTAKES = """\
.decl edge(x: number, y: numbr)
.decl path(x: number, y: number)
path(x, y) :- path(x, z), path(z, y)), x != y.
path(x, y) :- path(x, z), y == z.
path(x, "y") :- path(x, _).
path(x, y) :- path(x, _), !edges(x, y).
"""


def test_all_mistakes_are_reported_in_order_of_position() -> None:
    found = diagnose(FIVE_MISTAKES)
    assert [(d.code, d.span.line, d.span.column) for d in found if d.span] == [
        ("unknown-type", 1, 26),
        ("syntax", 3, 37),
        ("foreign-operator", 4, 29),
        ("type-mismatch", 5, 9),
        ("undeclared-relation", 6, 28),
    ]


def test_a_correct_program_gives_none() -> None:
    assert (
        diagnose("""
        .type City <: symbol   .type Pair = [a: number, b: number]
        .decl edge(x: City, y: City) input
        .decl path(x: City, y: City)   .output path
        .decl degree[x: City]: number  .view degree(strategy="counting")
        path(x, y) :- edge(x, y) ; path(x, z), edge(z, y), x != y.
        degree[x] = n :- edge(x, _), n = count : { edge(x, _) }.
        .decl odd(x: City, r: Pair)
        odd(x, [n, n % 2]) :- degree[x] = n, n % 2 = 1, n <-1 ; degree[x] = n, match("a(b)*", x).
        """)
        == ()
    )


@pytest.mark.parametrize(
    ("line", "column", "caret"),
    [
        ("p(x) :- q(x), x < top.", 19, "                  ^^^"),
        ("\tp(x)\t:- q(x), x < top.", 20, "\t    \t             ^^^"),
        ('p(x) :- q(x), "日本" != "é", x < top.', 32, " " * 31 + "^^^"),
        ('p(x) :- q(x), "𝕏" != "\u00a0", x < top.', 31, " " * 30 + "^^^"),
        ("/* ééé */ p(x) :- q(x), x < top.", 29, " " * 28 + "^^^"),
    ],
    ids=["plain", "tabs", "wide", "astral", "comment"],
)
def test_positions_count_characters(line: str, column: int, caret: str) -> None:
    (found,) = diagnose(f".decl p(x: number)\n.decl q(x: number)\n{line}\n")
    assert str(found.span) == f"test.dl:3:{column}"
    assert found.render().splitlines()[1:3] == [f"  3 | {line}", f"    | {caret}"]


def test_lines_may_end_as_on_windows() -> None:
    (found,) = diagnose(".decl p(x: number)\r\n\r\np(1)\r\n")
    assert str(found.span) == "test.dl:3:5"
    assert found.render().splitlines()[1:3] == ["  3 | p(1)", "    |     ^"]


def test_macros_do_not_move_what_stands_behind_them() -> None:
    text = "#define LONG 1000000000\n.decl p(x: number)\np(LONG). p(LONG, 2). p(LONG + y).\n"
    assert [str(d.span) for d in diagnose(text)] == ["test.dl:3:10", "test.dl:3:31"]
