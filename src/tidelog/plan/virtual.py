"""Which relations are not stored: those that `.view v(virtual=true)` says, and what only they read.

Their layers are maintained by update propagation and filtration (maintain/virtual.py). So are the
layers that read such a relation and are stored: they cannot look up its rows.

What lowering has made for a rule, such as the groups of an aggregate, is not stored if only virtual
relations read it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from tidelog.logic.program import Program
from tidelog.logic.strategies import Refusal
from tidelog.plan.forced import ForcedStrategies
from tidelog.plan.lowered import Layer, Lowered
from tidelog.plan.partial import partially_evaluated


def with_virtual(lowered: Lowered, program: Program, forced: ForcedStrategies) -> Lowered:
    """Return the program with the layers marked that read or hold virtual relations."""
    asked = {view.relation for view in program.views.values() if view.virtual}
    if not asked:
        return lowered
    for name in sorted(asked):
        if program.relations[name].functional:
            why = "that it has one value for each key is checked by its rows"
            raise forced.error(name, Refusal(f"`{name}` cannot be virtual: {why}"))
    virtual = _with_internal(lowered, asked, program.relations)
    layers = []
    for layer in lowered.layers:
        own = virtual.intersection(layer.relations)
        read = virtual.intersection(_reads(layer))
        if own or read:
            name = min(asked.intersection(own) or asked.intersection(read) or asked)
            refused = _refusal(layer, name, read)
            if refused is not None:
                raise forced.error(name, refused)
            layers.append(replace(layer, virtual=frozenset(own)))
        else:
            layers.append(layer)
    marked = replace(lowered, layers=tuple(layers))
    return partially_evaluated(marked, virtual.difference(program.relations))


def _refusal(layer: Layer, name: str, read: Collection[str]) -> Refusal | None:
    """Return why a relation cannot be virtual, if a layer forbids it."""
    first = layer.relations[0].partition("@")[0]
    if layer.recompute is not None:
        why = f"`{first}` is re-evaluated as a whole"
        return Refusal(f"`{name}` cannot be virtual: {why}", "have its rows stored")
    if layer.strategy is not None:
        other = f"`{layer.strategy}` maintains stored rows, and is asked for `{first}`"
        return Refusal(f"`{name}` cannot be virtual: {other}", "leave out the strategy")
    fails = layer.judges or (layer.aggregation is not None and layer.aggregation.failed is not None)
    if read and fails:
        why = f"an aggregate over it can fail, and other conditions of `{first}` can excuse that"
        return Refusal(f"`{name}` cannot be virtual: {why}", "give the aggregate a rule of its own")
    return None


def _with_internal(
    lowered: Lowered, asked: Collection[str], declared: Collection[str]
) -> frozenset[str]:
    """Return the virtual relations, with the internal ones that only these read."""
    readers: dict[str, list[Layer]] = {name: [] for name in lowered.relations}
    for layer in lowered.layers:
        for name in _reads(layer):
            readers[name].append(layer)
    virtual = set(asked)
    size = -1
    while size != len(virtual):
        size = len(virtual)
        for layer in lowered.layers:
            is_derived = layer.rules or layer.aggregation is not None
            if not is_derived or layer.judges or not set(declared).isdisjoint(layer.relations):
                continue
            others = [r for name in layer.relations for r in readers[name] if r is not layer]
            if others and all(virtual.issuperset(other.relations) for other in others):
                virtual.update(layer.relations)
    return frozenset(virtual)


def _reads(layer: Layer) -> Iterator[str]:
    for rule in layer.rules:
        for atom in rule.atoms:
            yield atom.relation
    if layer.aggregation is not None:
        yield layer.aggregation.source
    if layer.recompute is not None:
        yield from layer.recompute.reads
