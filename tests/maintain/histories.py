"""Random histories of a few relations, for programs that are written by hand."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from tests.generators.programs import RandomCase
from tests.maintain.comparing import Comparison
from tests.samples import sample
from tests.seeds import seeded

Row = tuple[Any, ...]
Draw = Callable[[random.Random], Row]


def check_history(
    label: str,
    program: str,
    draws: Mapping[str, Draw],
    *,
    epochs: int = sample(30, 60),
    most: int = 4,
    failing: Mapping[str, Row] | None = None,
) -> Comparison:
    """Compare the kernel with the oracle over random epochs of rows that `draws` gives.

    An epoch in the middle inserts the rows that are `failing`, so that at least one is undone.
    """
    rng = seeded(label)
    facts = {name: {draw(rng) for _ in range(rng.randint(0, 8))} for name, draw in draws.items()}
    held = {name: set(rows) for name, rows in facts.items()}
    history = []
    for _ in range(epochs):
        epoch = {}
        for name, draw in draws.items():
            adds = [draw(rng) for _ in range(rng.randint(0, most))]
            some = sorted(held[name], key=repr)
            # Now and then everything goes, and groups with it.
            count = len(some) if rng.random() < 0.04 else min(len(some), rng.randint(0, most))
            removes = [row for row in rng.sample(some, count) if row not in adds]
            held[name] = (held[name] | set(adds)) - set(removes)
            epoch[name] = (tuple(adds), tuple(removes))
        history.append(epoch)
    if failing is not None:
        history.insert(epochs // 2, {name: ((row,), ()) for name, row in failing.items()})
    frozen = {name: frozenset(rows) for name, rows in facts.items()}
    comparison = Comparison()
    comparison.check(RandomCase(0, (), (program,), frozen, tuple(history)))
    return comparison
