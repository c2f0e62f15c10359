"""Compiling kernels that make no arrays.

Numba counts who refers to an array, and every function that is given one counts anew, with atomic
instructions, unless it can prove that it need not. Loops in it, or around the call, spoil the
proof. A helper that gets ten arrays for each row then spends most of its time on that: to copy a
run took nine times as long.

What makes no array needs no counts, since its caller keeps those that it has given. So `bare`
leaves them out. A function that makes an array, or takes a part of one to return it, must not be
bare; Numba refuses to compile the former.
"""

from __future__ import annotations

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"cache": True, "_nrt": False}

bare = njit(**_OPTIONS)
