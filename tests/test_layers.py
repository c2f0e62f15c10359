"""Imports point one way: a folder imports only from those before it in ORDER, and from itself.

Imports inside functions and under TYPE_CHECKING count as any other.
"""

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "tidelog"

ORDER = (
    "source",
    "errors",
    "runtime",
    "lang",
    "values",
    "logic",
    "io",
    "reference",
    "plan",
    "kernel",
    "store",
    "join",
    "durable",
    "maintain",
    "engine",
    "persist",
    "proof",
    "database",
    "sharding",
    "spark",
    "serve",
    "bench",
    "cli",
)

# The reference evaluation is the oracle for the kernel. The two share no code. Only the engine that
# puts the oracle under a database uses it, and proofs, which try a few rows at a time.
ORACLE = "reference"
JUDGED = ("plan", "kernel", "store", "join", "maintain")
ORACLE_ENGINE = PurePosixPath("engine/reference_engine.py")
ORACLE_READER = "proof"

# tidelog/__init__.py gathers the public names of everything up to `database`, lazily. So it may
# import anything, and only what comes after `database` may import from it.
FACADE = "tidelog"
ABOVE_FACADE = ORDER[ORDER.index("database") + 1 :]
UNCHECKED = ("__init__", "__main__")


def layer_of(relative: PurePosixPath) -> str:
    """Return the layer of a file, given by its path below src/tidelog."""
    return relative.parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of all that a file of `package` imports, wherever it does so."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield node.lineno, alias.name
            case ast.ImportFrom(module=module, names=names, level=level):
                parts = package.split(".")
                base = parts[: len(parts) - level + 1] if level else []
                base += module.split(".") if module else []
                if base == ["tidelog"]:  # each name may be a layer
                    for alias in names:
                        yield node.lineno, f"tidelog.{alias.name}"
                else:
                    yield node.lineno, ".".join(base)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def reason_against(file: PurePosixPath, module: str) -> str | None:
    """Say why a file must not import `module`, or return None if it may."""
    layer = layer_of(file)
    root, *rest = module.split(".")
    if root != "tidelog" or rest == ["__version__"]:
        return None
    target = rest[0] if rest and rest[0] in ORDER else FACADE
    if target == FACADE and len(rest) > 1:
        return f"{rest[0]} is not in the order"
    if target == FACADE:
        if layer in ABOVE_FACADE:
            return None
        return f"only {', '.join(ABOVE_FACADE)} may import from the top-level package"
    if (layer == ORACLE and target in JUDGED) or (layer in JUDGED and target == ORACLE):
        return f"{ORACLE} shares no code with {', '.join(JUDGED)}"
    if target == ORACLE and layer not in (ORACLE, ORACLE_READER) and file != ORACLE_ENGINE:
        return f"only {ORACLE_ENGINE} and {ORACLE_READER} may use {ORACLE}"
    if ORDER.index(target) > ORDER.index(layer):
        return f"{target} comes after {layer}"
    return None


def violations(relative: PurePosixPath, text: str) -> list[str]:
    """Return a message for each forbidden import in a file, given its path below src/tidelog."""
    package = ".".join(["tidelog", *relative.parts[:-1]])
    found = []
    for line, module in imported_modules(ast.parse(text), package):
        reason = reason_against(relative, module)
        if reason:
            found.append(f"src/tidelog/{relative}:{line}: imports {module}, but {reason}")
    return found


def source_files() -> list[PurePosixPath]:
    return [PurePosixPath(p.relative_to(PACKAGE).as_posix()) for p in sorted(PACKAGE.rglob("*.py"))]


def unknown_layers(files: list[PurePosixPath]) -> list[str]:
    return sorted({layer_of(file) for file in files} - set(ORDER) - set(UNCHECKED))


def test_every_folder_has_its_place_in_the_order() -> None:
    files = source_files()
    assert files, f"no source below {PACKAGE}"
    assert not unknown_layers(files), (
        f"not in ORDER: {', '.join(unknown_layers(files))}; give each its place there"
    )


def test_imports_point_one_way() -> None:
    found = [
        message
        for file in source_files()
        if layer_of(file) in ORDER
        for message in violations(file, (PACKAGE / file).read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join([*found, f"The order is: {' < '.join(ORDER)}"])


@pytest.mark.parametrize(
    ("file", "text", "line", "module"),
    [
        ("errors.py", "from tidelog.lang import syntax", 1, "tidelog.lang"),
        ("lang/a.py", "import os\nimport tidelog.values.types", 2, "tidelog.values.types"),
        ("lang/a.py", "from tidelog import kernel", 1, "tidelog.kernel"),
        ("lang/a.py", "from tidelog import Program", 1, "tidelog.Program"),
        ("lang/a.py", "import tidelog", 1, "tidelog"),
        ("lang/a.py", "from tidelog.util.x import y, z", 1, "tidelog.util.x"),
        ("io/a.py", "def f():\n    from tidelog.cli.main import main", 2, "tidelog.cli.main"),
        ("io/a.py", "if TYPE_CHECKING:\n    import tidelog.plan", 2, "tidelog.plan"),
        ("io/a.py", "from ..store import rows", 1, "tidelog.store"),
        ("io/__init__.py", "from .. import store", 1, "tidelog.store"),
        ("io/deep/a.py", "from ...store import rows", 1, "tidelog.store"),
        ("io/a.py", "importlib.import_module('tidelog.store')", 1, "tidelog.store"),
        ("reference/a.py", "import tidelog.plan", 1, "tidelog.plan"),
        ("plan/a.py", "import tidelog.reference", 1, "tidelog.reference"),
        ("store/a.py", "import tidelog.reference", 1, "tidelog.reference"),
        ("kernel/a.py", "import tidelog.reference.eval", 1, "tidelog.reference.eval"),
        ("maintain/a.py", "from tidelog.reference import x", 1, "tidelog.reference"),
        ("engine/a.py", "from tidelog.reference import x", 1, "tidelog.reference"),
        ("bench/a.py", "def f():\n    import tidelog.reference", 2, "tidelog.reference"),
    ],
)
def test_the_check_catches(file: str, text: str, line: int, module: str) -> None:
    (message,) = violations(PurePosixPath(file), text)
    assert message.startswith(f"src/tidelog/{file}:{line}: imports {module}, but ")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("lang/a.py", "import os, tidelogical\nfrom tidelog.errors import ProgramError"),
        ("logic/program.py", "def f():\n    from tidelog.logic.analyse import analyse_text"),
        ("logic/a.py", "from . import types\nfrom .types import Type\nfrom ..lang import source"),
        ("io/__init__.py", "from .csv import read\nfrom tidelog.logic import types"),
        ("io/a.py", "import tidelog.source"),
        ("engine/a.py", "import tidelog.plan, tidelog.maintain"),
        ("engine/reference_engine.py", "from tidelog.reference import evaluate"),
        ("reference/a.py", "from tidelog.reference.functors import Failure"),
        ("lang/a.py", "from tidelog import __version__"),
        ("cli/main.py", "import tidelog\nfrom tidelog import Program"),
    ],
)
def test_the_check_lets_pass(file: str, text: str) -> None:
    assert violations(PurePosixPath(file), text) == []


def test_the_oracle_has_an_engine() -> None:
    text = (PACKAGE / ORACLE_ENGINE).read_text(encoding="utf-8")
    assert "from tidelog.reference import" in text


def test_a_new_folder_cannot_escape() -> None:
    files = [PurePosixPath(name) for name in ("__init__.py", "errors.py", "util/x.py", "misc.py")]
    assert unknown_layers(files) == ["misc", "util"]
