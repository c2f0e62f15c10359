"""A leading underscore is a wall: no module uses another module's underscore names.

Allowed are `self._x` and `cls._x`, and `other._x` where the same file shows that `other` is an
instance of a class that is defined there and has `_x`: by an annotation, or because it is made from
that class. Everything else is refused, also `from tidelog.x import _y`.
"""

import ast
from pathlib import Path, PurePosixPath

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "tidelog"

NAMED_TUPLE = {"_replace", "_asdict", "_make", "_fields"}
"""Public, in spite of their names: those of `NamedTuple`."""
THIRD_PARTIES = {
    "os._exit",
    "context._jsc",  # PySpark's ways to Java
    "context._jvm",
    "session._jsparkSession",
    "tracker._jtracker",
    "array._getvalue",  # Numba's way to return an array from an intrinsic
    "one._values",  # Numba's flags, which compilers compare a million times
    "other._values",
}
"""Names of other packages that have no public equivalent."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


class OwnClass:
    """A class of the file: its private names, and the types of its attributes."""

    def __init__(self, node: ast.ClassDef) -> None:
        self.node = node
        self.bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
        self.private: set[str] = set()
        self.types: dict[str, ast.expr] = {}
        for part in ast.walk(node):
            match part:
                case ast.FunctionDef(name=name, returns=returns):
                    self._add(name, returns)
                case ast.AnnAssign(
                    target=ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name),
                    annotation=annotation,
                ):
                    self._add(name, annotation)
                case (
                    ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store())
                    | ast.Name(id=name, ctx=ast.Store())
                    | ast.Constant(value=str(name))  # __slots__
                ):
                    self._add(name, None)

    def _add(self, name: str, annotation: ast.expr | None) -> None:
        if is_private(name):
            self.private.add(name)
        if annotation is not None:
            self.types[name] = annotation


class Boundaries(ast.NodeVisitor):
    """Finds the accesses to underscore names that a file has no right to."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[tuple[int, str]] = []
        self._classes = {
            node.name: OwnClass(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
        }
        self._inside: list[str] = []
        self._locals: dict[str, str | None] = {}
        self.visit(tree)

    # --- what the file shows of types ---

    def _named(self, annotation: ast.expr | None) -> str | None:
        """Return the class of this file that an annotation names."""
        for part in ast.walk(annotation) if annotation is not None else ():
            name = part.id if isinstance(part, ast.Name) else None
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                name = part.value
            if name in self._classes:
                return name
        return None

    def _type(self, node: ast.expr) -> str | None:
        """Return the class of this file that an expression is, or is an instance of."""
        match node:
            case ast.Name(id="self" | "cls") if self._inside:
                return self._inside[-1]
            case ast.Name(id=name):
                return self._locals.get(name, name if name in self._classes else None)
            case ast.Call(func=ast.Name() as made):
                return self._type(made)
            case ast.Call(func=ast.Attribute(value=owner, attr="__new__")):
                return self._type(owner)
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                return self._of(self._type(owner), name)
            case ast.Attribute(value=owner, attr=name):
                return self._of(self._type(owner), name)
        return None

    def _of(self, owner: str | None, name: str) -> str | None:
        if owner not in self._classes:
            return None
        own = self._classes[owner]
        if name in own.types:
            return self._named(own.types[name])
        return next((t for base in own.bases if (t := self._of(base, name))), None)

    def _has(self, owner: str | None, name: str) -> bool:
        if owner not in self._classes:
            return False
        own = self._classes[owner]
        return name in own.private or any(self._has(base, name) for base in own.bases)

    # --- the walk ---

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._inside.append(node.name)
        self.generic_visit(node)
        self._inside.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before = self._locals
        self._locals = dict(before)
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        for argument in arguments:
            if argument.arg not in ("self", "cls"):
                self._locals[argument.arg] = self._named(argument.annotation)
        self.generic_visit(node)
        self._locals = before

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._assign(target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self._locals[name] = self._type(value)
            case (ast.Tuple(elts=targets), ast.Tuple(elts=values)):
                for one, other in zip(targets, values, strict=False):
                    self._assign(one, other)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if isinstance(node.target, ast.Name):
            self._locals[node.target.id] = self._named(node.annotation)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        if not is_private(node.attr) or node.attr in NAMED_TUPLE:
            return
        match node.value:
            case ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super")):
                return
        if ast.unparse(node) in THIRD_PARTIES or self._has(self._type(node.value), node.attr):
            return
        self.found.append((node.lineno, ast.unparse(node)))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if is_private(alias.name) and (node.level or (node.module or "").startswith("tidelog")):
                self.found.append((node.lineno, f"from {node.module} import {alias.name}"))


def violations(relative: PurePosixPath, text: str) -> list[str]:
    """Return a message for each underscore name of another module that a file uses."""
    return [
        f"src/tidelog/{relative}:{line}: {what}" for line, what in Boundaries(ast.parse(text)).found
    ]


def test_no_module_touches_another_ones_underscore_names() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert files, f"no source below {PACKAGE}"
    found = [
        message
        for file in files
        for message in violations(
            PurePosixPath(file.relative_to(PACKAGE).as_posix()), file.read_text(encoding="utf-8")
        )
    ]
    assert not found, "\n".join([*found, "give what is needed a public name"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("from tidelog.engine.kernel import _load", 1),
        ("from . import _helper", 1),
        ("import tidelog.store.index as index\nindex._STEPS", 2),
        ("def f(engine: KernelEngine) -> None:\n    engine._catalog.everything()", 2),
        ("class A:\n    def f(self) -> None:\n        self._engine._catalog", 3),
        # Another object's name is not one's own because it is spelled alike.
        (
            "class A:\n    def f(self, other: B) -> None:\n        self._catalog = other._catalog",
            3,
        ),
        ("class A:\n    _x = 1\ndef f(a):\n    return a._x", 4),
        ("class A:\n    _x = 1\ndef f(a: A) -> int:\n    a = other()\n    return a._x", 5),
        ("class A:\n    _x = 1\ndef f(a: A) -> int:\n    return a._y", 4),
        ("import os\nos._environ", 2),
    ],
)
def test_the_check_catches(text: str, line: int) -> None:
    (message,) = violations(PurePosixPath("engine/a.py"), text)
    assert message.startswith(f"src/tidelog/engine/a.py:{line}: ")


@pytest.mark.parametrize(
    "text",
    [
        "from __future__ import annotations",
        "from numba import _dispatcher",
        "import os\nos._exit(1)",
        "record._replace(epoch=1)",
        "class A:\n    def f(self) -> None:\n        self._x = super()._x",
        "class A:\n    def __init__(self):\n        self._x = 1\n    @classmethod\n"
        "    def make(cls):\n        made = cls()\n        made._x = 2",
        "class A:\n    def __init__(self):\n        self._x = 1\n"
        "    def __eq__(self, other: A) -> bool:\n        return self._x == other._x",
        "class A:\n    _x = 1\n    def root(self) -> A:\n        return self\n"
        "    def f(self) -> int:\n        a, b = self.root(), self\n        return a._x + b._x",
        "class A:\n    _x = 1\nclass B(A):\n    pass\ndef f(b: B | None) -> int:\n    return b._x",
        "class A:\n    __slots__ = ('_x',)\ndef f() -> None:\n    A()._x",
    ],
)
def test_the_check_lets_pass(text: str) -> None:
    assert violations(PurePosixPath("engine/a.py"), text) == []
