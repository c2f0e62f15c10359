"""`tidelog warm`: compiles the kernels, and says what it did."""

from __future__ import annotations

from tidelog.cli.compiling import compile_with_progress
from tidelog.kernel.compile_all import compile_kernels, is_compiled
from tidelog.kernel.signatures import declared
from tidelog.kernel.warm import cache_folder


def warm_kernels(quiet: bool) -> None:
    """Compile what is not compiled yet."""
    if quiet:
        compile_kernels()
        return
    if is_compiled():
        print(f"all {len(declared())} kernels are compiled already")
    else:
        compile_with_progress()
    print(f"they are kept in {cache_folder()}")
