"""Compiling the kernels: before the first epoch, or ahead of time by `tidelog warm`.

Progress goes to standard error, as a bar on a terminal and as a few lines elsewhere. Nothing is
printed there if all kernels are compiled already.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelog.kernel.compile_all import (
    ABOUT_SECONDS,
    cache_folder,
    compile_kernels,
    compile_modules,
    cores,
    is_compiled,
)
from tidelog.kernel.signatures import declared


def compile_first() -> bool:
    """Compile the kernels unless they are compiled, and say so; return whether it did."""
    if is_compiled():
        return False
    _say(f"{_announcement()}; `tidelog warm` does it ahead of time")
    _compile_with_progress()
    return True


def warm_kernels(quiet: bool) -> None:
    """Compile the kernels unless they are compiled, and say where they are."""
    if is_compiled():
        compile_modules()
    if quiet:
        compile_kernels()
        return
    if is_compiled():
        print(f"all {len(declared())} kernels are compiled already")
    else:
        _compile_with_progress()
    print(f"they are kept in {cache_folder()}")


def _compile_with_progress() -> None:
    """Compile the kernels, and show the progress."""
    start = time.perf_counter()
    with _shown() as done:
        is_complete = compile_kernels(done)
    seconds = time.perf_counter() - start
    if is_complete:
        _say(f"compiled {len(declared())} kernels in {seconds:.1f} s")
    else:
        _say("some kernels could not be compiled now; they will be when they are first used")


def _announcement() -> str:
    number = cores()
    where = f"{number} cores" if number > 1 else "one core"
    return (
        f"compiling {len(declared())} kernels on {where}, once for this machine"
        f" (about {ABOUT_SECONDS} s on two cores)"
    )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@contextmanager
def _shown() -> Iterator[Callable[[str], None]]:
    """Provide a function to call with each kernel that is compiled."""
    if sys.stderr.isatty():
        with _bar() as advance:
            yield advance
    else:
        yield _lines()


def _lines() -> Callable[[str], None]:
    """Print a line for each quarter of the kernels."""
    total, count = len(declared()), 0

    def advance(kernel: str) -> None:
        nonlocal count
        count += 1
        if count < total and 4 * count // total > 4 * (count - 1) // total:
            _say(f"compiled {count} of {total} kernels")

    return advance


@contextmanager
def _bar() -> Iterator[Callable[[str], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("compiling, once"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=len(declared()))
        yield lambda kernel: progress.update(task, advance=1, description=kernel)
