"""What pages name exists: files, functions, make targets, and the targets of links."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, blocks_of
from tests.test_layers import ORDER

PACKAGE = ROOT / "src" / "tidelog"
BASES = {ROOT, PACKAGE, PACKAGE.parent}
NAMED = [*PAGES, ROOT / "CHANGELOG.md"]

_FENCED = re.compile(r"^```.*?^```\s*?$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w.-]+(/[\w.*-]+)*\.(py|lark|md|toml|dl|txt)|[\w.-]+(/[\w.-]+)*/")
_CALL = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\(\)")
_NAME_IN_FILE = re.compile(r"`([A-Za-z_][\w.]*)(?:\(\))?`\s+in\s+`([\w/]+\.py)`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
_MAKE = re.compile(r"make ([a-z]+)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose_of(page: Path) -> str:
    return _FENCED.sub("", page.read_text(encoding="utf-8"))


def names_in(file: Path) -> set[str]:
    """Return what a module defines: `function`, `Class`, `method`, `Class.method`, `CONSTANT`."""
    names: set[str] = set()

    def walk(body: list[ast.stmt], outer: str) -> None:
        for node in body:
            match node:
                case ast.FunctionDef(name=name):
                    names.update((name, outer + name))
                case ast.ClassDef(name=name, body=inner):
                    names.update((name, outer + name))
                    walk(inner, f"{name}.")
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ):
                    names.update((name, outer + name))

    walk(ast.parse(file.read_text(encoding="utf-8")).body, "")
    return names


@cache
def all_names() -> frozenset[str]:
    return frozenset(name for file in PACKAGE.rglob("*.py") for name in names_in(file))


@pytest.mark.parametrize("page", NAMED, ids=name_of)
def test_files_exist(page: Path) -> None:
    shown = "".join(block.text for block in blocks_of(page.read_text(encoding="utf-8")))
    files = {word.split("=", 1)[1] for word in re.findall(r"file=\S+", page.read_text("utf-8"))}
    missing = [
        code
        for code in _CODE.findall(prose_of(page))
        if _PATH.fullmatch(code)
        and not any(list(base.glob(code)) for base in BASES | {page.parent})
        and code not in files
        and code.rstrip("/") not in shown  # the page makes it
    ]
    assert not missing, f"no such file: {', '.join(missing)}"


@pytest.mark.parametrize("page", NAMED, ids=name_of)
def test_functions_exist(page: Path) -> None:
    shown = "".join(block.text for block in blocks_of(page.read_text(encoding="utf-8")))
    prose = prose_of(page)
    missing = [
        call[1]
        for code in _CODE.findall(prose)
        if (call := _CALL.fullmatch(code))
        and call[1] not in all_names()
        and not (call[1][0].islower() and call[1].rpartition(".")[2] in all_names())  # db.view()
        and code not in shown  # a name of the page's own
    ]
    assert not missing, f"nothing is called {', '.join(missing)}"
    wrong = [
        f"{name} in {file}"
        for name, file in _NAME_IN_FILE.findall(prose)
        if (path := PACKAGE / file).exists() and name not in names_in(path)
    ]
    assert not wrong, f"there is no {', '.join(wrong)}"


@pytest.mark.parametrize("page", NAMED, ids=name_of)
def test_make_targets_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {
        target
        for code in [*_CODE.findall(prose_of(page)), *(b.text for b in blocks_of(text))]
        for target in _MAKE.findall(code if code.startswith("make ") else "")
    }
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert named <= set(targets), f"no such make target: {', '.join(named - set(targets))}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = set()
    for heading in _HEADING.findall(prose_of(page)):
        words = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(words.replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", NAMED, ids=name_of)
def test_links_resolve(page: Path) -> None:
    broken = []
    for link in _LINK.findall(prose_of(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken, f"broken links: {', '.join(broken)}"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_order_of_folders_is_the_enforced_one(page: str) -> None:
    orders = re.findall(r"^ +(\w+(?: < \w+)+)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
    assert orders, "the page does not show the order"
    for order in orders:
        shown = order.split(" < ")
        assert shown == [name for name in ORDER if name in shown]
        missing = [name for name in shown if not list(PACKAGE.glob(f"{name}*"))]
        assert not missing, f"these do not exist yet: {', '.join(missing)}"
