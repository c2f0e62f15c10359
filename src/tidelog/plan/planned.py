"""A program as it is maintained: lowered, with join trees where they serve.

Everything that reads or writes a state plans the program here, so that all agree on what is stored.
"""

from __future__ import annotations

from tidelog.logic.program import Program
from tidelog.plan.lower import lower
from tidelog.plan.lowered import Lowered
from tidelog.plan.theta.choice import with_trees


def planned(program: Program) -> Lowered:
    """Return the program in the kernel's terms, with a choice for each relation."""
    functional = frozenset(r.name for r in program.relations.values() if r.functional)
    return with_trees(lower(program), functional)
