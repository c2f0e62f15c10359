"""The rows of some groups of a relation, found through an order that begins with their columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tidelog.join.compiler import BATCH, Output, compile_join
from tidelog.join.joins import reading
from tidelog.join.program import JoinProgram
from tidelog.kernel import join_layout as k
from tidelog.plan.body import AtomUse
from tidelog.plan.steps import Plan, Scan, Seek, Step
from tidelog.store.catalog import Catalog
from tidelog.store.domain import RAW_BITS, Domain
from tidelog.store.layout import Layout
from tidelog.store.run import Run
from tidelog.store.versions import Version

Array = NDArray[np.int64]


class GroupLookup:
    """Reads the rows of a relation that belong to given groups."""

    def __init__(self, catalog: Catalog, relation: str, group: tuple[int, ...]) -> None:
        self._catalog = catalog
        self._relation = catalog.relations[relation]
        self._name = relation
        self._group = group
        self._compiled: dict[object, JoinProgram] = {}

    def read(self, groups: Array, version: Version) -> tuple[Array, Array]:
        """Return the rows of the groups: for each the number of its group, and its ordinals."""
        program = self._program()
        numbered = np.empty((len(groups) + 1, groups.shape[1]), np.int64)
        numbered[0] = np.arange(groups.shape[1])
        numbered[1:] = groups
        batch = Run(numbered)
        index = self._relation.index(program.plan.orders[1])
        reads = reading(index, version)
        arity = len(self._relation.domains)
        program.read(0, batch.descriptors(), [batch], 0)
        if not batch or not program.read(1, reads.descriptors, reads.runs, reads.limit):
            return np.empty(0, np.int64), np.empty((arity, 0), np.int64)
        out = self._catalog.buffer(program.out_height)
        try:
            chunks = [out[:, :n].copy() for n in program.run(out)]
        finally:
            self._catalog.give_back(out)
        found = chunks[0] if len(chunks) == 1 else np.concatenate(chunks, axis=1)
        self._catalog.meter.found(found.shape[1])
        return found[0], found[1 : 1 + arity] + self._relation.biases

    def prepare(self) -> None:
        """Build the order that is read."""
        self._relation.index(self._program().plan.orders[1])

    def _program(self) -> JoinProgram:
        key = tuple(domain.generation for domain in self._relation.domains)
        program = self._compiled.get(key)
        if program is None:
            program = self._compiled[key] = self._compile()
        return program

    def _compile(self) -> JoinProgram:
        arity = len(self._relation.domains)
        slots = tuple(f"c{i}" for i in range(arity))
        batch = AtomUse(BATCH, ("%row", *(slots[c] for c in self._group)))
        source = AtomUse(self._name, slots)
        rest = tuple(c for c in range(arity) if c not in self._group)
        steps: list[Step] = [Scan(0, tuple(range(len(batch.args))))]
        if self._group:
            steps.append(Seek(1, self._group))
        if rest:
            steps.append(Scan(1, rest))
        orders = (tuple(range(len(batch.args))), (*self._group, *rest))
        plan = Plan((batch, source), 0, tuple(steps), orders, 0.0)
        raw = Domain()
        raw.bits = RAW_BITS
        layouts = [
            Layout(orders[0], [raw] * len(batch.args)),
            Layout(orders[1], self._relation.domains),
        ]
        domains = dict(zip(slots, self._relation.domains, strict=True))
        places = tuple((slot, i, 0, -1) for i, slot in enumerate(("%row", *slots)))
        return compile_join(plan, layouts, domains, {}, Output(1 + arity, places), k.PLAIN)
