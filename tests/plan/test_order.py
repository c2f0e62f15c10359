"""The search for the cheapest order, against the same search without anything left out."""

import math
import random

from tests.seeds import case_seeds
from tidelog.plan.body import AtomUse
from tidelog.plan.order import Orderer, Stats


class Exhaustive(Orderer):
    """Tries every order that the search has to choose from."""

    def _search(self, state) -> None:
        if not state.atoms:
            self._finish(state)
            cost = state.cost + self._new_orders(state)
            if cost < self._best_cost:
                self._best, self._best_cost = state, cost
            return
        for choose in self._choices(state):
            following = state.copy()
            choose(following)
            self._advance(following)
            self._search(following)


def _body(rng: random.Random) -> dict:
    slots = [f"v{i}" for i in range(rng.randint(2, 5))]
    atoms = [
        AtomUse(f"r{i}", tuple(rng.sample([*slots, None], rng.randint(1, min(3, len(slots))))))
        for i in range(rng.randint(1, 4))
    ]
    if rng.random() < 0.3:
        bound = {slot for atom in atoms for slot in atom.slots}
        if bound:
            atoms.append(AtomUse("n", (rng.choice(sorted(bound)),), negated=True))
    stats = []
    for atom in atoms:
        rows = rng.choice([1.0, 10.0, 1000.0, 1e6])
        stats.append(Stats(rows, tuple(min(rows, rng.choice([1.0, 30.0, 1e5])) for _ in atom.args)))
    held = [
        [tuple(rng.sample(range(len(atom.args)), len(atom.args))) for _ in range(rng.randint(0, 2))]
        for atom in atoms
    ]
    positive = [i for i, atom in enumerate(atoms) if not atom.negated]
    return {
        "atoms": atoms,
        "conditions": [],
        "known": frozenset(rng.sample(slots, rng.randint(0, 1))),
        "driver": rng.choice([None, *positive]),
        "stats": lambda i: stats[i],
        "held": lambda i: held[i],
        "price": rng.choice([0.0, 0.02, 0.5]),
        "sorting": rng.choice([0.0, 2.0]),
        "whole_driver": rng.random() < 0.3,
    }


def test_nothing_cheaper_is_left_out() -> None:
    for seed in case_seeds(300, offset=99_000):
        body = _body(random.Random(seed))
        found, all_of_them = Orderer(**body), Exhaustive(**body)
        found.plan()
        all_of_them.plan()
        assert math.isclose(found._best_cost, all_of_them._best_cost, rel_tol=1e-9), (seed, body)
