"""`tidelog warm` compiles every kernel that Python calls, for all types it is called with."""

import ast
import importlib
import importlib.util
import json
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from numba.core.dispatcher import Dispatcher

import tidelog.kernel
from tidelog.cli.compiling import warm_kernels
from tidelog.kernel.compile_all import KernelQueue, cache_folder, compile_modules
from tidelog.kernel.signatures import declared, describe

DECORATORS = {
    "njit",
    "kernel",
    "bare_kernel",
    "bare_kernel_without_gil",
    "kernel_without_gil",
    "helper",
    "bare_helper",
    "inlined",
}
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tidelog"

# Runs the exercises and random programs in a new process; tells what each kernel was called with.
SCRIPT = """
import json
from tests.generators.programs import Shape, random_case
from tests.seeds import case_seeds
import tidelog
from tidelog.bench.exercises import warm_up
from tidelog.engine.kernel import KernelEngine
from tidelog.kernel.signatures import declared, describe, find_kernel

def signatures():
    return sorted(
        describe(name, types) for name in declared() for types in find_kernel(name).signatures
    )

warm_up()
exercised = signatures()
for seed in case_seeds(40, offset=95_000):
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
print(json.dumps({"exercised": exercised, "all": signatures()}))
"""


def all_kernels() -> dict[str, Any]:
    """Return every function of the package that Numba compiles, by module and name."""
    found = {}
    for info in pkgutil.iter_modules(tidelog.kernel.__path__):
        module = importlib.import_module(f"tidelog.kernel.{info.name}")
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__:
                found[f"{info.name}.{name}"] = value
    return found


def is_compiled(node: ast.AST) -> bool:
    """Return whether this is a function that Numba compiles."""
    return isinstance(node, ast.FunctionDef) and any(
        ast.unparse(decorator).partition("(")[0] in DECORATORS for decorator in node.decorator_list
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


def called_from_python(folder: Path = PACKAGE) -> set[str]:
    return set().union(*(kernels_called_by(file) for file in folder.rglob("*.py")))


def test_the_search_for_calls_finds_some() -> None:
    assert {"join.join", "rows.pack", "rows.unpack"} <= called_from_python()


def test_python_calls_no_helper() -> None:
    called = called_from_python()
    assert called <= set(declared()), "no line of kernel/signatures.py has this kernel"
    wrapped = {n for n, k in all_kernels().items() if "no_cpython_wrapper" not in k.targetoptions}
    called |= called_from_python(ROOT / "tests")
    assert called <= wrapped, "a helper, called from Python, crashes the process"


def test_the_signatures_are_those_that_the_engine_uses() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    stated = {describe(name, types) for name, found in declared().items() for types in found}
    used = set(report["all"])
    assert not used - stated, "lines missing in kernel/signatures.py:\n" + "\n".join(used - stated)
    assert not stated - used, "lines that nothing needs:\n" + "\n".join(stated - used)
    unexercised = used - set(report["exercised"])
    assert not unexercised, f"no exercise in bench/exercises.py calls {unexercised}"


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
    script = "from tidelog.kernel.compile_all import cache_folder; print(cache_folder())"
    done = subprocess.run(
        [sys.executable, "-c", script], env={"NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(done.stdout.strip()).is_relative_to(tmp_path)


def test_work_is_shared_by_block_and_then_taken_from_the_fullest() -> None:
    work = KernelQueue([["a1", "a2", "a3", "a4"], ["b1"]])
    assert [work.next_for(0), work.next_for(1)] == ["a1", "b1"]
    assert [work.next_for(1), work.next_for(0)] == ["a4", "a2"]
    assert [work.next_for(0), work.next_for(1), work.next_for(0)] == ["a3", None, None]


def compile_two(cache: Path, script: str = "") -> subprocess.CompletedProcess[str]:
    """Compile two small kernels as if there were no others."""
    script = f"""
import logging, sys
from tidelog.kernel import compile_all
from tidelog.kernel.signatures import declared
names = "rows.see", "descriptors.address_of"
compile_all.blocks = lambda: [{{name: declared()[name]}} for name in names]
{script}
done = []
before = compile_all.is_compiled()
print(before, compile_all.compile_kernels(done.append), compile_all.is_compiled(), sorted(done))
"""
    return subprocess.run(
        [sys.executable, "-c", script], env={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip


def test_processes_compile_into_the_cache_once(tmp_path: Path) -> None:
    shown = "False True True ['descriptors.address_of', 'rows.see']\n"
    assert compile_two(tmp_path).stdout == shown
    indexes = {file.name.partition("-")[0] for file in tmp_path.rglob("*.nbi")}
    assert indexes == {"rows.see", "descriptors.address_of"}
    assert compile_two(tmp_path).stdout == "True True True []\n"


def test_kernels_of_other_sources_are_compiled_again(tmp_path: Path) -> None:
    compile_two(tmp_path)
    (mark,) = tmp_path.rglob("*.compiled")
    mark.rename(mark.with_name(mark.name.rpartition("-")[0] + "-0123456789abcdef.compiled"))
    (first,) = tmp_path.rglob("rows.see-*.nbi")
    before = first.stat().st_mtime_ns
    assert compile_two(tmp_path).stdout.startswith("False True True")
    assert first.stat().st_mtime_ns > before
    assert list(tmp_path.rglob("*.compiled")) == [mark]


def test_a_process_that_fails_leaves_kernels_to_their_first_call(tmp_path: Path) -> None:
    failed = compile_two(tmp_path, 'compile_all.sys.executable = "/bin/false"')
    assert failed.stdout == "False False False []\n"
    assert "has ended too early" in failed.stderr


def test_modules_have_bytecode() -> None:
    compile_modules()
    for module in ("cli/run.py", "engine/kernel.py", "plan/order.py"):
        source = PACKAGE / module
        compiled = Path(importlib.util.cache_from_source(str(source)))
        assert compiled.stat().st_size > 0
        assert int.from_bytes(compiled.read_bytes()[8:12], "little") == int(source.stat().st_mtime)
