"""Which kernels there are, and where Numba keeps what it compiled."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import tidelog.kernel
from tidelog.kernel.signatures import declared


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
    """Return the kernels that Python calls: those that have a signature (kernel/signatures.py)."""
    return {name: find_kernel(name) for name in declared()}


def ready_kernels() -> set[str]:
    """Return the entry kernels that this process has compiled or loaded."""
    return {name for name, kernel in entry_kernels().items() if kernel.signatures}


def find_kernel(name: str) -> Any:
    """Return a kernel by module and name."""
    module, _, function = name.partition(".")
    return getattr(importlib.import_module(f"tidelog.kernel.{module}"), function)


def cache_folder() -> Path:
    """Return the folder in which Numba keeps what it compiled.

    That is NUMBA_CACHE_DIR if it is set, else `__pycache__` beside the source, else, where that
    cannot be written, a folder of the user's.
    """
    return Path(find_kernel("join.join").stats.cache_path)
