"""One row between its ordinals and the words that it is stored as, for kernels to call.

The fields of a layout (store/layout.py) tell where each column is: word, shift, mask and bias.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True)
def pack_row(ordinals, fields, row):
    """Write the words of a row; return the first column that does not fit its field, or -1."""
    for w in range(row.shape[0]):
        row[w, 0] = 0
    for c in range(fields.shape[0]):
        code = ordinals[c, 0] - fields[c, 3]
        if code & ~fields[c, 2]:
            return np.int64(c)
        row[fields[c, 0], 0] += code << fields[c, 1]
    return np.int64(-1)


@njit(cache=True)
def unpack_row(row, fields, ordinals):
    """Write the ordinals of a row."""
    for c in range(fields.shape[0]):
        code = (row[fields[c, 0], 0] >> fields[c, 1]) & fields[c, 2]
        ordinals[c, 0] = code + fields[c, 3]
