"""The analysis of a whole Java program: `tidelog run`, from files to files.

Most of the time of such a run is not in joins, but in reading symbols, in planning many rules, and
in writing. So it is measured as users see it: a process that starts, reads, evaluates, and writes.
DuckDB's closure of the suite `closure` is measured beside it, as a unit for the speed of a machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, SuiteFigures, Target
from tidelog.bench.suites.closure import measure_duckdb

PROGRAM = Path(__file__).parent.parent / "programs" / "whole_program.dl"
SEED = 5
RUN, CLOSURE = "files to files", "bootstrap"
SOUFFLE, DUCKDB = "Soufflé, compiled", "duckdb"


def _facts(request: Request, folder: Path) -> int:
    """Write the files of facts: 2.6 million facts, or 5% of them; return how many."""
    from tidelog.bench.program_facts import write_facts
    from tidelog.logic.program import DirectiveKind, Program

    inputs = Program.load(PROGRAM).directives_of(DirectiveKind.INPUT)
    names = [directive.relation for directive in inputs]
    return write_facts(folder, names, 5650 if request.is_full else 300, SEED)


def _timed(command: Sequence[str | Path]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.perf_counter() - start


def _figure(what: str, seconds: float, facts: int, out: Path) -> Figure:
    rows = sum(path.read_bytes().count(b"\n") for path in out.iterdir())
    return Figure(what, seconds, rows, note=f"{facts:,} facts; the rows are those of the outputs")


def _ours(request: Request) -> Iterator[Figure]:
    from tidelog.bench.exercises import warm_up

    warm_up()
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        folder, out = Path(name) / "facts", Path(name) / "out"
        folder.mkdir()
        facts = _facts(request, folder)
        command: list[str | Path] = [sys.executable, "-P", "-m", "tidelog"]
        command += ["run", PROGRAM, "-F", folder, "-D", out]
        yield _figure(RUN, _timed(command), facts, out)


def _souffle(request: Request) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(prefix="tidelog-bench-") as name:
        folder, out, binary = (Path(name) / part for part in ("facts", "out", "program"))
        folder.mkdir()
        out.mkdir()
        facts = _facts(request, folder)
        yield Figure("compile", _timed(["souffle", "-o", binary, PROGRAM]))
        yield _figure(RUN, _timed([binary, "-F", folder, "-D", out]), facts, out)


def _against_closure(found: SuiteFigures) -> float:
    return found.seconds(RUN) / found.seconds(CLOSURE, engine=DUCKDB)


SUITE = Suite(
    "program",
    "analysis of a whole Java program, 36 relations and mutual recursion: files to files",
    (
        BenchCase(OURS, _ours),
        BenchCase(SOUFFLE, _souffle, commands=("souffle",)),
        BenchCase(DUCKDB, lambda request: measure_duckdb(request, None), module="duckdb"),
    ),
    (Target("run, against duckdb's closure", 5.5, "x", _against_closure),),
)
