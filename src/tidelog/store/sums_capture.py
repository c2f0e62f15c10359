"""The groups of an aggregate as they were, while epochs go on changing them.

As store/capture.py does it for runs: heads are overwritten in place, and the block of an old sum is
given to others once its epoch has committed. So just before that, what the log of the epoch knows
of its groups is noted here, with the words of their old sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.kernel import accumulate as k
from tidelog.kernel import groups as g
from tidelog.store.capture import Past

Array = NDArray[np.int64]

_SIZES = np.array([0, *(2 << size for size in range(1, g.BLOCK_SIZES)), k.LARGEST_BLOCK], np.int64)


class SumsCapture:
    """Heads and words at one moment. The arrays are those in use."""

    saved: Any = None
    """Where files hold all of it already."""

    def __init__(self, heads: Array, words: NDArray[np.uint32], words_used: int) -> None:
        """Note the groups; heads that are not in use have no support."""
        self.words_used = words_used
        self.heads = Past(heads.reshape(-1))
        self.words = Past(words.view(np.int32))
        self.sizes = (heads.size, len(words))
        self._width = heads.shape[1]

    def note(self, heads: Array, words: NDArray[np.uint32], log: Array) -> None:
        """Remember the groups that an epoch has changed, before it lets go of their old sums."""
        slots, key = log[:, g.LOG_SLOT], self._width - g.FIELDS
        old = heads[slots]
        support = log[:, g.LOG_SUPPORT]
        old[:, key + g.SUPPORT] = np.where(support > 0, support, -1)  # new ones were not there
        old[:, key + g.VALUE] = log[:, g.LOG_VALUE]
        old[:, key + g.BLOCK] = log[:, g.LOG_BLOCK]
        old[:, key + g.SHAPE] = log[:, g.LOG_SHAPE]
        places = slots[:, None] * self._width + np.arange(self._width)
        self.heads.note(places.reshape(-1), old.reshape(-1))
        sizes = _SIZES[log[:, g.LOG_SHAPE] >> k.SIZE_SHIFT]
        ends = np.cumsum(sizes)
        within = np.arange(int(sizes.sum())) - np.repeat(ends - sizes, sizes)
        at = np.repeat(log[:, g.LOG_BLOCK], sizes) + within
        self.words.note(at, words[at].view(np.int32).astype(np.int64))


class SavedSums(SumsCapture):
    """Groups that have not been read yet: whatever epochs do to them, files hold them."""

    def __init__(self, saved: Any) -> None:
        self.saved = saved

    def note(self, heads: Array, words: NDArray[np.uint32], log: Array) -> None:
        """Remember nothing."""
