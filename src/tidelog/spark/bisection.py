"""Which of many rows make an epoch fail: a search by halves.

    rows     . . . . x . . .         does it compute with these, on top of those accepted?
    tries    [. . . .]               yes: accepted
                     [x .]           no: halves
                     [x]             no: this row fails, with this error
                       [.]  [. .]    yes

A row alone may be fine, and fail together with an earlier one. Then the later one fails, in the
order of the rows. A row may also fail only because a later one was not there yet. So those that
have failed are tried once more at the end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tidelog.errors import DataError, EvaluationError, FunctionalConflict

RULE_ERRORS = (EvaluationError, FunctionalConflict)
"""The errors of rules."""
TRIES = 1000
"""How often an epoch is computed at most."""

Bools = NDArray[np.bool_]


class Bisection:
    """Looks for the rows of an epoch on which rules fail.

    `probe` computes the epoch with some of the rows and undoes it. It returns the error of a rule,
    if there is one. `error` is that of the whole epoch.
    """

    def __init__(self, size: int, probe: Callable[[Bools], DataError | None], error: DataError):
        self._probe, self._error = probe, error
        self._accepted = np.zeros(size, np.bool_)
        self._tries = 0
        self.reasons: dict[int, str] = {}
        """Which rows fail, and why."""

    def find(self) -> dict[int, str]:
        """Return the rows on which rules fail, by their numbers, and the reasons."""
        if self._failure() is not None:
            raise self._error  # also without new rows: a deletion makes it fail
        self._halves(0, len(self._accepted))
        for row in list(self.reasons):
            self._accepted[row] = True
            if self._failure() is None:
                del self.reasons[row]
            else:
                self._accepted[row] = False
        return self.reasons

    def _halves(self, low: int, high: int) -> None:
        middle = (low + high) // 2
        for start, end in ((low, middle), (middle, high)):
            if start == end:
                continue
            self._accepted[start:end] = True
            error = self._failure()
            if error is None:
                continue
            self._accepted[start:end] = False
            if end - start == 1:
                self.reasons[start] = "; ".join(line.strip() for line in str(error).splitlines())
            else:
                self._halves(start, end)

    def _failure(self) -> DataError | None:
        self._tries += 1
        if self._tries > TRIES:
            raise DataError(
                f"{self._error}\n  note: rules fail on more than {len(self.reasons):,} rows of"
                " this epoch, which is too many to look for"
                "\n  help: let the rule check its values, such as `x != 0`"
            )
        return self._probe(self._accepted)
