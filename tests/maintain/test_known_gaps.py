"""Wrong answers that random programs have found, and that are not mended yet.

Each test fails as long as its gap is there; one that passes must move to the tests that are kept.
"""

from __future__ import annotations

import pytest

import tidelog

TWICE = """
.decl given(x: number)
.decl low(x: number, y: number)
.decl all(x: number, y: number)
low(x, x) :- 6 % (x - 7) < 4, all(_, x), all(_, x).
all(x, x) :- given(x).
all(x, x) :- low(x, x).
"""


@pytest.mark.xfail(reason="a failure in a recursion is missed if an update brings the first rows")
def test_a_failure_behind_equal_atoms_with_wildcards() -> None:
    """A bootstrap raises the error, and so does the reference engine."""
    with pytest.raises(tidelog.EvaluationError):
        tidelog.Database(TWICE, facts={"given": [(7,)]})
    database = tidelog.Database(TWICE)
    with pytest.raises(tidelog.EvaluationError), database.transaction() as transaction:
        transaction.insert("given", [(7,)])
