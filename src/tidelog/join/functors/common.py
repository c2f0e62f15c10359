"""What all functors share: the types of columns and of functors, and how one fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ordinals: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Reason: TypeAlias = Callable[[int], str]
"""Why a row failed, by its index."""
Scalar: TypeAlias = Callable[..., int]
"""A functor on single ordinals; it raises `Uncomputable`."""


class Uncomputable(Exception):
    """A functor cannot compute with its arguments."""
