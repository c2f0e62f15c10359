"""The reference pages leave nothing out: functors, aggregates, codes, options, public names."""

import ast
import contextlib
import inspect
import io
import re
from unittest import mock

import pytest

import tidelog
from tests.docs.pages import ROOT
from tidelog.lang.lexer import AGGREGATES, QUALIFIERS
from tidelog.lang.parser import _REFUSED
from tidelog.logic.functors import FUNCTOR_NAMES, INFIX, PREFIX
from tidelog.logic.strategies import STRATEGIES
from tidelog.values.types import PRIMITIVES

DOCS = ROOT / "docs"
# Public to other folders of Tidelog, not to its users.
FOR_TIDELOG = {"net"}
_CODE = re.compile(r"[a-z]+(-[a-z]+)*")


def read(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def code_words(text: str) -> set[str]:
    """Return the words inside backquotes, outside of fenced blocks."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return {
        word for code in re.findall(r"`([^`\n]+)`", prose) for word in re.split(r"[\s(),]", code)
    }


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("functors", FUNCTOR_NAMES | set(INFIX) | set(PREFIX) | {"match", "contains"}),
        ("aggregates", AGGREGATES),
        ("types", {*PRIMITIVES, "decimal", "set"}),
        ("qualifiers", QUALIFIERS),
        ("refused directives", set(_REFUSED)),
        ("strategies", set(STRATEGIES)),
    ],
)
def test_the_language_page_has_all(what: str, names: set[str]) -> None:
    missing = names - code_words(read("language.md"))
    assert not missing, f"{what} that docs/language.md leaves out: {', '.join(sorted(missing))}"


def codes() -> set[str]:
    """Return the codes that the source gives to mistakes in programs."""
    found = {"syntax"}  # the default of lang/mistakes.py
    for file in (ROOT / "src" / "tidelog").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ("error", "_error", "Diagnostic", "_report_once"):
                values = node.args[:2]
            elif name == "Mistake":
                values = node.args[3:4] + [k.value for k in node.keywords if k.arg == "code"]
            else:
                continue
            found |= {
                value.value
                for value in values
                if isinstance(value, ast.Constant)
                and isinstance(value.value, str)
                and _CODE.fullmatch(value.value)
            }
    return found


def test_the_errors_page_has_every_code() -> None:
    listed = set(re.findall(r"^\| `([a-z-]+)` \|", read("errors.md"), re.MULTILINE))
    assert listed == codes()


def help_of(*words: str) -> str:
    from tidelog.cli.main import main

    out = io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        mock.patch("sys.argv", ["tidelog", *words, "--help"]),
        contextlib.suppress(SystemExit),
    ):
        main()
    return out.getvalue()


def test_the_command_line_page_has_every_command_and_option() -> None:
    page = read("command-line.md")
    commands = re.findall(r"^  ([a-z]+) ", help_of().partition("Commands:")[2], re.MULTILINE)
    assert "run" in commands
    for command in commands:
        assert f"## tidelog {command}" in page
        for option in re.findall(
            r"(?<=\s)--?[A-Za-z-]+", help_of(command).partition("Options:")[2]
        ):
            assert option in code_words(page), f"{option} of `tidelog {command}` is left out"


def test_the_python_page_has_every_public_name() -> None:
    words = set(re.findall(r"\w+", read("python.md")))
    missing = set(tidelog.__all__) - words
    for kind in (tidelog.Database, tidelog.Transaction, tidelog.View, tidelog.Change):
        for name, _ in inspect.getmembers(kind):
            if not name.startswith("_") and name not in words | FOR_TIDELOG:
                missing.add(f"{kind.__name__}.{name}")
    assert not missing, f"docs/python.md leaves out {', '.join(sorted(missing))}"


def test_the_readme_shows_the_example_as_it_is() -> None:
    example = (ROOT / "examples" / "reach" / "reach.dl").read_text(encoding="utf-8")
    assert example in (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_example_has_a_page_that_shows_it() -> None:
    pages = [ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    examples = sorted((ROOT / "examples").rglob("*.dl"))
    assert examples
    for example in examples:
        assert example.relative_to(ROOT).as_posix() in shown
