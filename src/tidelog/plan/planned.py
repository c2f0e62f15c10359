"""A program as it is maintained: lowered, with join trees where they serve.

Everything that reads or writes a state plans the program here, so that all agree on what is stored.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.logic.program import Program
from tidelog.logic.strategies import Refusal
from tidelog.plan.forced import NOTHING_FORCED, ForcedStrategies
from tidelog.plan.lower import lower
from tidelog.plan.lowered import Lowered
from tidelog.plan.theta.choice import NAME as TREE
from tidelog.plan.theta.choice import Refused, tree_shapes, with_trees
from tidelog.plan.theta.ranged import with_ranges
from tidelog.plan.traces import NAME as LEAPFROG
from tidelog.plan.traces import untraceable
from tidelog.plan.virtual import with_virtual


def planned(program: Program, strategies: Mapping[str, str] = NOTHING_FORCED) -> Lowered:
    """Return the program in the kernel's terms, with a choice for each relation.

    `strategies` has strategies that the caller forces, by relation, beside those of the program.
    """
    forced = ForcedStrategies(program, strategies)
    functional = frozenset(r.name for r in program.relations.values() if r.functional)
    whole = with_virtual(lower(program, forced), program, forced)
    virtual = {n for la in whole.layers if la.virtual is not None for n in la.relations}
    found = with_trees(with_ranges(whole), functional | virtual)
    for layer in found.layers:
        if layer.strategy == TREE and layer.tree is None:
            refused, name = tree_shapes(found, layer, functional), layer.relations[0]
            assert isinstance(refused, Refused)
            raise forced.error(name, Refusal(f"`{TREE}` cannot maintain `{name}`: {refused.why}"))
        if layer.strategy == LEAPFROG and layer.rules:
            name, reasons = layer.relations[0], [untraceable(rule) for rule in layer.rules]
            if None not in reasons:
                raise forced.error(
                    name, Refusal(f"`{LEAPFROG}` cannot maintain `{name}`: {reasons[0]}")
                )
    return found
