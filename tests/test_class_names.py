"""One name, one meaning: no two classes of the source have the same name.

Names with an underscore in front are known in their file only, and may occur again.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "tidelog"

# Empty, and to stay so: give the less central class a more specific name.
EXCEPTIONS: frozenset[str] = frozenset()


def places(package: Path) -> dict[str, list[str]]:
    """Return the files in which a class of each public name is defined."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(package)))
    return found


def test_a_class_name_occurs_once() -> None:
    repeated = {name: files for name, files in places(PACKAGE).items() if len(files) > 1}
    new = {name: files for name, files in repeated.items() if name not in EXCEPTIONS}
    assert not new, f"these names occur more than once: {new}"
    once = sorted(EXCEPTIONS - repeated.keys())
    assert not once, f"these occur once by now, take them out of EXCEPTIONS: {once}"


def test_the_search_finds_what_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A:\n    class B:\n        pass\nclass _C: pass\n")
    (tmp_path / "b.py").write_text("def f():\n    class B:\n        pass\nclass _C: pass\n")
    assert places(tmp_path) == {"A": ["a.py"], "B": ["a.py", "b.py"]}
