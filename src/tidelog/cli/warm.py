"""`tidelog warm`: compiles the kernels, and says what it did."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from tidelog.bench.exercises import warm_up
from tidelog.kernel.warm import (
    Compilation,
    cache_folder,
    entry_kernels,
    ready_kernels,
    watch_compilation,
)


class _Display(Protocol):
    def started(self, kernel: str) -> None: ...

    def finished(self, compilation: Compilation) -> None: ...


class _Silent:
    def started(self, kernel: str) -> None:
        pass

    def finished(self, compilation: Compilation) -> None:
        pass


def warm_kernels(quiet: bool) -> None:
    """Compile what is not compiled yet."""
    compiled: list[Compilation] = []
    start = time.perf_counter()
    with _display(quiet) as display:

        def finished(compilation: Compilation) -> None:
            compiled.append(compilation)
            display.finished(compilation)

        with watch_compilation(display.started, finished):
            warm_up()
    if quiet:
        return
    seconds = time.perf_counter() - start
    if compiled:
        kernels = len({compilation.kernel for compilation in compiled})
        print(f"compiled {kernels} kernels in {seconds:.1f} s")
    else:
        print(f"all {len(ready_kernels())} kernels are compiled already")
    print(f"they are kept in {cache_folder()}")


@contextmanager
def _display(quiet: bool) -> Iterator[_Display]:
    """Show a bar with a step for each kernel, on a terminal only."""
    if quiet or not sys.stderr.isatty():
        yield _Silent()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("loading", total=len(entry_kernels()))

        class Bar:
            def started(self, kernel: str) -> None:
                progress.update(task, description=f"compiling {kernel}")

            def finished(self, compilation: Compilation) -> None:
                progress.console.print(f"{compilation.seconds:6.1f} s  {compilation.kernel}")
                progress.update(task, completed=len(ready_kernels()), description="running")

        yield Bar()
