"""Queries for tests: as short text, and at random."""

from __future__ import annotations

from random import Random

from tidelog.plan.theta.query import ThetaQuery
from tidelog.plan.theta.triplet import ThetaPredicate


def query(atoms: str, output: str = "", predicates: str = "") -> ThetaQuery:
    """Return a query: "xy yz", "xyz", "xz" is r(x, y), s(y, z) with a predicate on x and z."""
    return ThetaQuery(
        tuple(map(frozenset, atoms.split())),
        frozenset(output),
        tuple(ThetaPredicate(p, frozenset(p), i) for i, p in enumerate(predicates.split())),
        tuple(f"r{i}({', '.join(atom)})" for i, atom in enumerate(atoms.split())),
    )


def random_query(rng: Random) -> ThetaQuery:
    """Return a query of a few atoms; about as many are cyclic as are not."""
    names = "abcdefg"[: rng.randint(2, 7)]
    atoms = ["".join(rng.sample(names, rng.randint(1, min(3, len(names)))))
             for _ in range(rng.randint(1, 5))]  # fmt: skip
    used = sorted(set("".join(atoms)))
    output = rng.sample(used, rng.randint(0, len(used)))
    predicates = ["".join(rng.sample(used, rng.randint(1, min(3, len(used)))))
                  for _ in range(rng.randint(0, 4))]  # fmt: skip
    return query(" ".join(atoms), "".join(output), " ".join(predicates))
