"""How Numba compiles the functions of this package.

`kernel` is for functions that Python calls, `helper` for those that only kernels call. A helper has
no wrapper for Python and no entry in the cache, which both cost time: it is compiled into the
kernels that call it. Calling a helper from Python crashes the process, so a test forbids it
(tests/cli/test_warm.py). `inlined` helpers are inlined by LLVM. Numba's own `inline="always"`
copies the function into its caller before types are known, and each copy is compiled again: with it
the join took 12 s to compile, without it 7 s.

`bare` variants count no references. Numba counts the references to each array. Every function that
is passed an array counts again, with atomic instructions, unless Numba can prove that it need not.
Loops in the function, or around the call, prevent the proof. A helper that gets ten arrays for each
row then spends most of its time on counting: copying a run took nine times as long. A function that
creates no array needs no counts, since its caller holds the arrays that it passes. A function that
creates an array, or returns a part of one, must not be bare; Numba refuses to compile the former.

The constants are arguments for helpers. Numba compiles a helper again for each literal that it is
called with; these are not literals.

`without_gil` variants release the GIL: those that work on large arrays for several threads at once
(runtime/workers.py). It costs some 50 ns a call.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_FROM_PYTHON: dict[str, Any] = {"cache": True, "no_cfunc_wrapper": True}
_FROM_KERNELS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_BARE: dict[str, Any] = {"_nrt": False}

kernel = njit(**_FROM_PYTHON)
bare_kernel = njit(**_FROM_PYTHON, **_BARE)
kernel_without_gil = njit(**_FROM_PYTHON, nogil=True)
bare_kernel_without_gil = njit(**_FROM_PYTHON, **_BARE, nogil=True)
helper = njit(**_FROM_KERNELS)
bare_helper = njit(**_FROM_KERNELS, **_BARE)
inlined = njit(**_FROM_KERNELS, **_BARE, forceinline=True)

ZERO, ONE = np.int64(0), np.int64(1)
TRUE, FALSE = np.bool_(True), np.bool_(False)
