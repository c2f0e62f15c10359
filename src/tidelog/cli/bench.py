"""`tidelog bench`: run suites and show their figures."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidelog.bench.chart import chart
from tidelog.bench.machine import describe, machine
from tidelog.bench.model import BenchCase, Request, Scale, Suite
from tidelog.bench.report import SuiteResult, placed, sections, tables
from tidelog.bench.runner import Watcher, run_suite
from tidelog.bench.suites import SUITES
from tidelog.errors import UsageError, did_you_mean

_WIDTH = 160  # of the tables, if there is no terminal


def list_them() -> None:
    """Print the suites and what each measures."""
    width = max(map(len, SUITES))
    for suite in SUITES.values():
        print(f"{suite.name:<{width}}  {suite.about}")


def run_bench(
    names: list[str],
    data: Path | None,
    scale: str,
    peers: bool,
    json_file: Path | None,
    markdown_file: Path | None,
    plot_file: Path | None,
) -> None:
    """Run suites; after each, print its tables and rewrite the files."""
    from rich.console import Console

    suites = _suites(names)
    if data is not None and not data.is_dir():
        raise UsageError(f"--data: {data} is not a folder")
    if plot_file is not None and sum(suite.plot is not None for suite in suites) != 1:
        with_plot = [suite.name for suite in SUITES.values() if suite.plot is not None]
        raise UsageError(
            f"--plot draws one suite\n  help: name one that has a plot: {', '.join(with_plot)}"
        )
    page = _page(markdown_file)
    request = Request(Scale(scale), None if data is None else data.absolute())
    about = machine()
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
    console.print(f"{describe(about)}; scale {scale}")
    results: list[SuiteResult] = []
    for suite in suites:
        with _progress() as watch:
            outcomes = tuple(run_suite(suite, request, peers, watch))
        results.append(SuiteResult(suite, request.scale, outcomes))
        for table in tables(results[-1]):
            console.print(table)
        # After every suite, so that an interrupted run keeps its results so far.
        if json_file is not None:
            _write(json_file, _json(about, request.scale, results))
        if markdown_file is not None:
            measured = sections(about, request.scale, results)
            _write(markdown_file, placed(measured, page, list(SUITES)))
        if plot_file is not None and suite.plot is not None:
            _write(plot_file, chart(suite.plot, outcomes))


def _suites(names: list[str]) -> list[Suite]:
    for name in names:
        if name not in SUITES:
            hint = did_you_mean(name, SUITES) or f"there are {', '.join(SUITES)}"
            raise UsageError(f"there is no suite `{name}`; {hint}")
    return [suite for suite in SUITES.values() if not names or suite.name in names]


def _page(file: Path | None) -> str:
    """Return the page for the tables; fail now if it cannot be written, not after an hour."""
    if file is None or not file.exists():
        return ""
    page = file.read_text(encoding="utf-8")
    placed({}, page, ())
    return page


def _json(about: dict[str, object], scale: Scale, results: list[SuiteResult]) -> str:
    suites = {result.suite.name: result.as_data() for result in results}
    data = {"machine": about, "scale": scale.value, "suites": suites}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {file}: {error.strerror}") from None


@contextmanager
def _progress() -> Iterator[Watcher]:
    """Show what is being measured and for how long, on a terminal only."""
    if not sys.stderr.isatty():
        yield lambda suite, case: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("")

        def watch(suite: Suite, case: BenchCase) -> None:
            number = suite.cases.index(case) + 1
            progress.reset(
                task, description=f"{suite.name} {number}/{len(suite.cases)}: {case.name}"
            )

        yield watch
