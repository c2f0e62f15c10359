"""How Numba compiles the functions of this package.

`kernel` is for what Python calls, `helper` for what only kernels call. A helper gets no wrapper for
Python and no place in the cache: it is compiled into the kernels that call it, and both cost time.
Calling a helper from Python crashes the process, so a test forbids it (tests/cli/test_warm.py).
`inlined` helpers are inlined by LLVM. Numba's own `inline="always"` copies the function into its
caller before types are known, and everything behind is done again for each copy: with it the join
took 12 s to compile, without it 7 s.

`bare` variants count no references. Numba counts who refers to an array, and every function that is
given one counts again, with atomic instructions, unless it can prove that it need not. Loops in it,
or around the call, spoil the proof. A helper that gets ten arrays for each row then spends most of
its time on that: to copy a run took nine times as long. What makes no array needs no counts, since
its caller keeps those that it has given. A function that makes an array, or takes a part of one to
return it, must not be bare; Numba refuses to compile the former.

The constants are for arguments of helpers. Numba compiles a helper again for each literal that it
is called with; these are not literals.
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
helper = njit(**_FROM_KERNELS)
bare_helper = njit(**_FROM_KERNELS, **_BARE)
inlined = njit(**_FROM_KERNELS, **_BARE, forceinline=True)

ZERO, ONE = np.int64(0), np.int64(1)
TRUE, FALSE = np.bool_(True), np.bool_(False)
