"""Which kernels there are, whether they are compiled, and where Numba keeps what it compiled.

A kernel is compiled when it is first called, for the types it is called with, and then loaded
from a cache. That first time takes half a minute; `tidelog warm` lets the user choose when.
Nothing here calls a kernel: the engine does (bench/exercises.py), and this module watches.
"""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tidelog.kernel

_clocks: list[Any] = []  # one, when somebody has asked for it
Compiled = Callable[["Compilation"], None]


@dataclass(frozen=True)
class Compilation:
    """One kernel, compiled for one combination of types, with all that it calls."""

    kernel: str
    seconds: float


def all_kernels() -> dict[str, Any]:
    """Return every function of this package that Numba compiles, by module and name."""
    from numba.core.dispatcher import Dispatcher

    found = {}
    for info in pkgutil.iter_modules(tidelog.kernel.__path__):
        module = importlib.import_module(f"tidelog.kernel.{info.name}")
        for name, value in vars(module).items():
            if isinstance(value, Dispatcher) and value.py_func.__module__ == module.__name__:
                found[f"{info.name}.{name}"] = value
    return found


def entry_kernels() -> dict[str, Any]:
    """Return the kernels that Python calls: those with a public name that no kernel calls.

    What a kernel calls is compiled into it, and of no use in the cache.
    """
    kernels = all_kernels()
    inner = {
        id(called)
        for kernel in kernels.values()
        for name in kernel.py_func.__code__.co_names
        if (called := kernel.py_func.__globals__.get(name)) is not kernel
    }
    return {
        name: kernel
        for name, kernel in kernels.items()
        if id(kernel) not in inner and not name.partition(".")[2].startswith("_")
    }


def ready_kernels() -> set[str]:
    """Return the entry kernels that this process has compiled or loaded."""
    return {name for name, kernel in entry_kernels().items() if kernel.signatures}


def cache_folder() -> Path:
    """Return the folder in which Numba keeps what it compiled.

    That is NUMBA_CACHE_DIR if it is set, else `__pycache__` beside the source, else, where that
    cannot be written, a folder of the user's.
    """
    kernel = next(iter(entry_kernels().values()))
    return Path(kernel.stats.cache_path)


def is_compiled() -> bool:
    """Return whether some earlier process has compiled the join, which takes longest."""
    from tidelog.kernel.join import join

    kernel: Any = join
    return any(Path(kernel.stats.cache_path).glob("join.join-*.nbi"))


def preparing_seconds() -> float:
    """Return how long this process has compiled kernels, or loaded them, since this was asked."""
    if not _clocks:
        from numba.core import event

        class Clock(event.Listener):
            """Adds up the time in which the compiler is at work. It may call itself."""

            def __init__(self) -> None:
                self.seconds = 0.0
                self._since = 0.0
                self._depth = 0

            def on_start(self, event: Any) -> None:
                """Start the clock."""
                if not self._depth:
                    self._since = time.perf_counter()
                self._depth += 1

            def on_end(self, event: Any) -> None:
                """Stop the clock."""
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.perf_counter() - self._since

        _clocks.append(Clock())
        event.register("numba:compiler_lock", _clocks[0])  # type: ignore[no-untyped-call]
    return float(_clocks[0].seconds)


@contextmanager
def watch_compilation(started: Callable[[str], None], finished: Compiled) -> Iterator[None]:
    """Report the entry kernels that are compiled meanwhile; those that are loaded are not."""
    from numba.core import event

    names = {id(kernel): name for name, kernel in entry_kernels().items()}

    class Listener(event.Listener):
        """Measures the time between the two events of a compilation."""

        def __init__(self) -> None:
            self._since: dict[int, float] = {}

        def on_start(self, event: Any) -> None:
            """Begin with a kernel."""
            key = id(event.data["dispatcher"])
            if key in names:
                self._since[key] = time.perf_counter()
                started(names[key])

        def on_end(self, event: Any) -> None:
            """Report a kernel."""
            key = id(event.data["dispatcher"])
            if key in names:
                seconds = time.perf_counter() - self._since.pop(key)
                finished(Compilation(names[key], seconds))

    with event.install_listener("numba:compile", Listener()):
        yield
