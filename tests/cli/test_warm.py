"""`tidelog warm` compiles every kernel that Python calls, for all types it is called with."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.cli.warm import warm_kernels
from tidelog.kernel.warm import all_kernels, cache_folder, entry_kernels

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tidelog"

# Warms up in a new process, then runs random programs, and tells what they compiled or loaded.
SCRIPT = """
import json
from tests.generators.programs import Shape, random_case
import tidelog
from tidelog.bench.exercises import warm_up
from tidelog.engine.kernel import KernelEngine
from tidelog.kernel.warm import entry_kernels, ready_kernels

def signatures():
    return {name: set(map(str, kernel.signatures)) for name, kernel in entry_kernels().items()}

warm_up()
ready, before = ready_kernels(), signatures()
for seed in range(40):
    case = random_case(seed, Shape(wide=0.3))
    try:
        program = tidelog.Program.parse(case.program)
        kernel = KernelEngine(program, {n: set(case.facts.get(n, ())) for n in program.relations})
        for epoch in case.epochs:
            inserted = {name: set(adds) - set(removes) for name, (adds, removes) in epoch.items()}
            deleted = {name: set(removes) - set(adds) for name, (adds, removes) in epoch.items()}
            kernel.apply(inserted, deleted)
    except tidelog.TidelogError:
        continue
more = {name: sorted(found - before[name]) for name, found in signatures().items()}
print(json.dumps({"ready": sorted(ready), "more": {n: s for n, s in more.items() if s}}))
"""


def is_compiled(node: ast.AST) -> bool:
    """Return whether this is a function that Numba compiles."""
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(decorator).startswith(("njit", "bare")) for decorator in node.decorator_list
    )


def outside_kernels(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes that Python itself executes."""
    for node in ast.iter_child_nodes(tree):
        if not is_compiled(node):
            yield node
            yield from outside_kernels(node)


def kernels_called_by(file: Path) -> set[str]:
    """Return the kernels that a file names outside of kernels, as `module.function`."""
    modules: dict[str, str] = {}  # what a file calls a module of the kernel
    names: dict[str, str] = {}  # what it calls a function of such a module
    if file.parent.name == "kernel":
        names = {name.partition(".")[2]: name for name in all_kernels() if file.stem in name}
    nodes = list(outside_kernels(ast.parse(file.read_text(encoding="utf-8"))))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "tidelog.kernel":
            modules |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tidelog.kernel."):
            module = (node.module or "").rpartition(".")[2]
            names |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names}
    found = set()
    for node in nodes:
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in modules:
                found.add(f"{modules[module]}.{name}")
            case ast.Name(id=name, ctx=ast.Load()) if name in names:
                found.add(names[name])
    return found & set(all_kernels())


def called_from_python() -> set[str]:
    return set().union(*(kernels_called_by(file) for file in PACKAGE.rglob("*.py")))


def test_the_search_for_calls_finds_some() -> None:
    assert {"join.join", "rows.pack", "rows.unpack"} <= called_from_python()


def test_every_kernel_is_warm_after_warming() -> None:
    assert called_from_python() <= set(entry_kernels()), (
        "Python calls a kernel that has a private name, or that other kernels call"
    )
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    cold = called_from_python() - set(report["ready"])
    assert not cold, f"no exercise in bench/exercises.py calls {', '.join(sorted(cold))}"
    assert not report["more"], f"types that no exercise uses: {report['more']}"


def test_it_says_what_it_did(capsys: pytest.CaptureFixture[str]) -> None:
    warm_kernels(quiet=False)
    capsys.readouterr()
    warm_kernels(quiet=False)
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("kernels are compiled already")
    assert second == f"they are kept in {cache_folder()}"


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    warm_kernels(quiet=True)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "")


def test_the_folder_of_the_cache_can_be_chosen(tmp_path: Path) -> None:
    script = "from tidelog.kernel.warm import cache_folder; print(cache_folder())"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)
