"""Compiling the kernels before the first epoch, with a bar on a terminal and a few lines elsewhere.

A message goes to standard error, and only when there is something to compile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidelog.kernel.compile_all import ABOUT_SECONDS, compile_kernels, cores, is_compiled
from tidelog.kernel.signatures import declared


def compile_first() -> bool:
    """Compile the kernels unless they are compiled, and say so; return whether it did."""
    if is_compiled():
        return False
    _say(f"{_announcement()}; `tidelog warm` does it ahead of time")
    compile_with_progress()
    return True


def compile_with_progress() -> float:
    """Compile the kernels and show how far that is; return the seconds it took."""
    start = time.perf_counter()
    with _shown() as done:
        is_complete = compile_kernels(done)
    seconds = time.perf_counter() - start
    if is_complete:
        _say(f"compiled {len(declared())} kernels in {seconds:.1f} s")
    else:
        _say("not all kernels could be compiled now: they are when they are first used")
    return seconds


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
    """Give what is to be called with each kernel that is compiled."""
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
