"""Whether a program should be evaluated on demand, when only its outputs are wanted.

    answer(x) :- reach("a", x).         .output answer

It should if each recursion is asked for with some columns bound: then it computes fewer rows, often
by far. Otherwise an ordinary evaluation is faster. And nothing in the program may fail: on demand,
an error that the outputs do not need would not be found.
"""

from __future__ import annotations

from tidelog.logic.program import DirectiveKind, Program
from tidelog.plan.body import is_fallible
from tidelog.plan.demand import DemandRewriting, bound_by_recursion, definitions
from tidelog.plan.lower import lower
from tidelog.plan.lowered import Layer
from tidelog.plan.order import Stats

_ANY = Stats(1e4, (1e3,) * 256)


def pays_on_demand(program: Program) -> bool:
    """Return whether to evaluate only what the outputs of a program ask for."""
    views = [view for view in program.views.values() if view.virtual or view.strategy]
    functional = any(relation.functional for relation in program.relations.values())
    wanted = {d.relation for d in program.directives if d.kind is not DirectiveKind.INPUT}
    if views or functional or not wanted:
        return False
    lowered = lower(program)
    if bound_by_recursion(lowered) or any(map(_can_fail, lowered.layers)):
        return False
    recursive = {n for layer in lowered.layers if layer.recursive for n in layer.relations}
    if not recursive:
        return False
    defined = definitions(lowered, lambda name: False)
    rewriting = DemandRewriting(defined, lambda name: lowered.relations[name], lambda name: _ANY)
    for name in sorted(wanted & defined.keys()):
        rewriting.call(name, ())
    asked = [bound for name, bound in rewriting.calls if name in recursive]
    return bool(asked) and all(asked)


def _can_fail(layer: Layer) -> bool:
    """Return whether computing a layer can be an error."""
    aggregation = layer.aggregation
    if layer.judges or layer.errors_of is not None:
        return True
    if aggregation is not None and (aggregation.op == "sum" or aggregation.algebra is not None):
        return True
    return any(is_fallible(condition) for rule in layer.rules for condition in rule.conditions)
