"""The derivations of one row by one rule, found one at a time.

The joins of a strategy (join/joins.py) enumerate everything, in large chunks. A proof needs one
derivation of one row, and a row can have thousands. So this join writes into a buffer of one
column, and goes on only when it is asked to. It joins positive atoms and the conditions that the
kernel can compute; what else the rule says is for the caller to test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tidelog.join.compiler import Output, compile_join
from tidelog.kernel import join_layout as k
from tidelog.kernel.marks import DEAD
from tidelog.plan.body import Condition, LoweredRule, is_external, outputs
from tidelog.plan.bounds import slot_bounds
from tidelog.plan.order import Orderer, Stats
from tidelog.store.catalog import Catalog
from tidelog.store.domain import Domain
from tidelog.store.layout import Layout
from tidelog.store.run import Run, Words, descriptors_of

_PRICE = 0.5  # of a new order, for each row of its relation: it is sorted once, and stays
_FIRST, _MORE = 1, 256  # derivations that are asked for at a time

Limit = Callable[[str], int]
"""The largest mark of the rows of a relation that may be read: their level (kernel/marks.py)."""


class DerivationJoin:
    """Joins a body from one row of its first atom.

    Planned for the sizes that the relations have now, and valid until a domain widens.
    """

    def __init__(self, catalog: Catalog, body: LoweredRule) -> None:
        """Plan and compile; all atoms of `body` are positive, and stored in the catalog."""
        self._catalog = catalog
        self.atoms, self.types = body.atoms, body.types
        self._domains = _slot_domains(catalog, body)
        conditions = _computable(body)
        plan = Orderer(
            body.atoms,
            conditions,
            frozenset(body.constants),
            0,
            self._stats,
            lambda i: tuple(catalog.relations[body.atoms[i].relation].indexes),
            _PRICE,
            bounds=slot_bounds(conditions, body.constants, lambda slot, number, type_: False),
            kept=frozenset(self._domains),
        ).plan()
        self._orders = plan.orders
        self.slots = tuple(sorted(set(self._domains) - set(body.constants)))
        """The slots that a derivation has values for: all variables of the atoms."""
        self.decoders = [catalog.codec.decoder(body.types[slot]) for slot in self.slots]
        constants = {}
        for slot, constant in body.constants.items():
            ordinal = catalog.codec.find(constant.value, constant.type)
            domain = self._domains.get(slot)
            if ordinal is None:
                constants[slot] = -1  # which no row has
            else:
                constants[slot] = ordinal if domain is None else domain.code(ordinal)
        places = tuple((slot, i, 0, -1) for i, slot in enumerate(self.slots))
        self._program = compile_join(
            plan,
            [
                Layout(order, catalog.domains(a.relation))
                for a, order in zip(plan.atoms, plan.orders, strict=True)
            ],
            self._domains,
            constants,
            Output(max(1, len(places)), places),
            k.PLAIN,
        )

    def _stats(self, atom: int) -> Stats:
        stats = self._catalog.stats(self.atoms[atom].relation)
        return Stats(1.0, (1.0,) * len(stats.distinct)) if atom == 0 else stats

    def run(self, row: Words, limit: Limit) -> Iterator[list[int]]:
        """Yield the ordinals of `slots` in each derivation of a row, as they are found."""
        program, relations = self._program, self._catalog.relations
        for i, (atom, order) in enumerate(zip(self.atoms, self._orders, strict=True)):
            relation = relations[atom.relation]
            if i == 0:
                runs = [relation.arranged(Run(row), order)]
                readable = program.read(i, descriptors_of(runs), runs, DEAD)
            else:
                index = relation.index(order)
                readable = program.read(
                    i, index.descriptors(), index.all_runs(), limit(atom.relation)
                )
            if not readable:
                return
        program.refresh(self._catalog.record_address)
        biases = [self._domains[slot].bias for slot in self.slots]
        out = np.empty((program.out_height, _FIRST), np.int64)
        program.begin()
        try:
            done = False
            while not done:
                found, done = program.advance(out)
                for codes in out[: len(biases), :found].T.tolist():
                    yield [code + bias for code, bias in zip(codes, biases, strict=True)]
                if found:
                    out = np.empty((program.out_height, _MORE), np.int64)
        finally:
            program.release()


def _slot_domains(catalog: Catalog, body: LoweredRule) -> dict[str, Domain]:
    domains: dict[str, Domain] = {}
    for atom in body.atoms:
        for slot, domain in zip(atom.args, catalog.domains(atom.relation), strict=True):
            assert slot is not None, "every column of a proof has a name"
            assert domains.setdefault(slot, domain) is domain, f"{slot} has two domains"
    return domains


def _computable(body: LoweredRule) -> list[Condition]:
    """Return the conditions that the kernel can compute from the atoms."""
    bound = set(body.constants).union(*(atom.slots for atom in body.atoms))
    kept: list[Condition] = []
    waiting = [c for c in body.conditions if not is_external(c)]
    while ready := [c for c in waiting if c.inputs <= bound]:
        kept += ready
        bound.update(slot for condition in ready for slot in outputs(condition))
        waiting = [c for c in waiting if c not in ready]
    return kept
