"""Run the cases of suites one after the other, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tidelog.bench.model import BenchCase, Figure, Outcome, Request, Suite

Watcher = Callable[[Suite, BenchCase], None]
"""Called with each case before it runs."""


def run_suite(suite: Suite, request: Request, peers: bool, watch: Watcher) -> Iterator[Outcome]:
    """Yield the outcome of each case."""
    for case in suite.cases:
        reason = why_not(case, request, peers)
        if reason:
            yield Outcome(case, not_measured=reason)
        else:
            watch(suite, case)
            yield run_case(suite, case, request)


def why_not(case: BenchCase, request: Request, peers: bool) -> str:
    """Return why a case is not measured; empty if it is."""
    if case.is_peer and not peers:
        return "--no-peers"
    if case.full_only and not request.is_full:
        return "only with --scale full"
    if case.files and request.data is None:
        return "needs --data, the folder of the facts"
    for file in case.files:
        if not request.folder(file).exists():
            return f"{request.folder(file)} does not exist"
    if case.module is not None and importlib.util.find_spec(case.module) is None:
        return f"{case.module} is not installed"
    for command in case.commands:
        if shutil.which(command) is None:
            return f"there is no `{command}` on PATH"
    return ""


def run_case(suite: Suite, case: BenchCase, request: Request) -> Outcome:
    """Measure a case in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as folder:
        results, errors = Path(folder) / "results", Path(folder) / "errors"
        results.touch()
        # -P: `import` must not find files of the current folder.
        command = [sys.executable, "-P", "-m", "tidelog.bench.worker", suite.name, case.name]
        command += [request.scale.value, str(request.data or ""), str(results)]
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr
            )
            try:
                code = process.wait(timeout=case.seconds)
                reason = "" if code == 0 else _last_words(errors, code)
            except subprocess.TimeoutExpired:
                reason = f"ended after {case.seconds:,.0f} s"
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        lines = results.read_text(encoding="utf-8").splitlines()
    return Outcome(case, tuple(Figure(**json.loads(line)) for line in lines), reason)


def _last_words(errors: Path, code: int) -> str:
    """Return why a process failed: its last line of output, or its signal."""
    if code < 0:
        return f"killed by signal {-code}"
    lines = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"failed: {lines[-1].strip()}" if lines else f"failed with exit code {code}"
