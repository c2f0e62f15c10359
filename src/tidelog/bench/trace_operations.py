"""How many operations an update of a trace takes, for the edits that the trace needs.

The aim of Veldhuizen's maintenance is a cost proportional to the edit distance of the traces before
and after a change (leapfrog-maintenance.md, 1.1). Here rows change one by one in random joins and
in those of the paper, and each update is measured by

    iterator operations of the update / ((edit distance of the two whole traces + 1) * log2 n)

where n is the number of rows that the rule reads. The distance is counted by brute force
(bench/trace_distance.py), so the worst ratio of a join shows whether it grows with the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tidelog.bench.trace_distance import tables_of, trace_distance
from tidelog.plan.steps import Leap
from tidelog.values.types import Row

Tables = dict[str, list[Row]]

VIEW = "v"
HOT = 50  # values of z that are in g, h and i many times
_EACH, _FEW = 32, 4
_WINDOW = 4  # the columns of a row of a random join are this close to each other


@dataclass(frozen=True)
class BenchRule:
    """A rule for `v`, and facts for it."""

    rule: str
    arities: Mapping[str, int]
    make: Callable[[int], Tables]
    """Returns about so many rows."""

    @property
    def program(self) -> str:
        """The rule, with declarations."""
        head = self.rule.partition(" :- ")[0]
        columns = head.count(",") + 1
        declared = {**self.arities, VIEW: columns}
        lines = [
            f".decl {name}({', '.join(f'c{c}: number' for c in range(arity))})"
            for name, arity in declared.items()
        ]
        return "\n".join((*lines, self.rule)) + "\n"


@dataclass(frozen=True)
class Update:
    """What one epoch took."""

    operations: int
    edits: int
    rows: int
    first_edits: int
    """The edits if the last variable, where the head has it not, stopped at its first value."""

    @property
    def ratio(self) -> float:
        """Operations for each edit, and for each step of a binary search."""
        return self.operations / ((self.edits + 1) * math.log2(self.rows))


def power_law(size: int, seed: int = 1) -> list[tuple[int, int]]:
    """Return about `size` distinct edges from smaller to larger nodes, with a few large hubs."""
    rng = np.random.default_rng(seed)
    nodes = size // 8
    weights = (np.arange(nodes) + 10.0) ** -0.6
    ends = rng.choice(nodes, (2, 3 * size), p=weights / weights.sum())
    ends = np.unique(ends[:, ends[0] < ends[1]], axis=1)
    chosen = rng.permutation(ends.shape[1])[:size]
    return list(map(tuple, ends[:, chosen].T.tolist()))


def sparse_graph(size: int, seed: int = 1) -> list[tuple[int, int]]:
    """Return about `size` distinct edges between half as many nodes."""
    ends = np.random.default_rng(seed).integers(0, size // 2, (2, size))
    return list(map(tuple, np.unique(ends, axis=1).T.tolist()))


def small_relation(size: int) -> Tables:
    """Return g, h and i with `size` rows each, and a small r; few rows of r are in a result."""
    rng = np.random.default_rng(1)
    n = size // HOT
    hot = [(x, z) for z in range(HOT) for x in range(n)]
    others = (2 * rng.integers(0, n, len(hot))).tolist()
    joined = [
        (x, 2 * y, z)
        for x, y, z in zip(
            *rng.integers(0, n, (2, n)).tolist(), rng.integers(100, 1000, n).tolist(), strict=True
        )
    ]
    facts: Tables = {
        "g": [*hot, *((x, z) for x, _, z in joined)],
        "h": [*((2 * y + 1, z) for y, z in hot), *((y, z) for _, y, z in joined)],
        "i": [*((x, y, z) for (x, z), y in zip(hot, others, strict=True)), *joined],
        "r": [(z,) for z in range(100, 1000, 7)],
    }
    return {name: sorted(set(rows)) for name, rows in facts.items()}


def witnesses(size: int) -> Tables:
    """Return about `size` rows, in groups of nodes; most rows of `a` have about 16 witnesses."""
    rng = np.random.default_rng(1)
    groups = np.arange(size // (2 * _EACH + _FEW)) // _EACH
    found: Tables = {}
    for name, values, chosen in (
        ("a", _EACH, _FEW),
        ("b", 2 * _EACH, _EACH),
        ("c", 2 * _EACH, _EACH),
    ):
        rows = [
            (node, group * values + int(value))
            for node, group in enumerate(groups.tolist())
            for value in rng.permutation(values)[:chosen].tolist()
        ]
        found[name] = sorted(rows)
    return found


def random_shape(seed: int) -> BenchRule:
    """Return a connected join of three or four atoms over at most four variables."""
    rng = np.random.default_rng(seed)
    arities = {"e": 2, "g": 2, "i": 3}
    atoms: list[str] = []
    used: list[str] = []
    for number in range(int(rng.integers(3, 5))):
        name = str(rng.choice(list(arities)))
        while True:
            args = [str(a) for a in rng.permutation(list("xyzw"))[: arities[name]]]
            if not number or any(arg in used for arg in args):
                break
        used += [arg for arg in args if arg not in used]
        atoms.append(f"{name}({', '.join(args)})")
    names = {atom[0] for atom in atoms}
    kept = {name: arity for name, arity in arities.items() if name in names}

    def make(size: int) -> Tables:
        rng = np.random.default_rng(seed)
        each = size // len(kept)
        values = max(2, each // 2)
        return {
            name: [*map(tuple, np.unique(_local(rng, values, arity, each), axis=1).T.tolist())]
            for name, arity in kept.items()
        }

    return BenchRule(f"{VIEW}({', '.join(used)}) :- {', '.join(atoms)}.", kept, make)


def _local(
    rng: np.random.Generator, values: int, arity: int, size: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return rows whose columns are close to each other, so that cycles are frequent."""
    first = rng.integers(0, values, size)
    return (first + rng.integers(0, _WINDOW, (arity, size))) % values


TRIANGLE = BenchRule(
    "v(x, y, z) :- e(x, y), e(y, z), e(x, z).", {"e": 2}, lambda n: {"e": power_law(n)}
)
SMALL_RELATION = BenchRule(
    "v(x, y) :- g(x, z), h(y, z), i(x, y, z), r(z).", {"g": 2, "h": 2, "i": 3, "r": 1},
    lambda n: small_relation(n // 3),
)  # fmt: skip
WITNESSES = BenchRule("v(x, y) :- a(x, y), b(x, z), c(y, z).", {"a": 2, "b": 2, "c": 2}, witnesses)
FOUR_CYCLE = BenchRule(
    "v(x, y, z, w) :- e(x, y), e(y, z), e(z, w), e(w, x).", {"e": 2},
    lambda n: {"e": sparse_graph(n)},
)  # fmt: skip
BENCH_RULES = {
    "triangles": TRIANGLE,
    "4-cycles": FOUR_CYCLE,
    "g, h, i, r": SMALL_RELATION,
    "witnesses": WITNESSES,
    **{f"random {number}": random_shape(number) for number in (1, 2, 3)},
}


def updates(shape: BenchRule, size: int, epochs: int, seed: int = 1) -> Iterator[Update]:
    """Yield what each of some epochs of one changed row took."""
    from tidelog.database.database import Database, kernel_of
    from tidelog.maintain.leapfrog import Leapfrog

    rng = np.random.default_rng(seed)
    facts = shape.make(size)
    names = list(facts)
    rows = sum(map(len, facts.values()))
    database = Database(shape.program, facts=facts, strategy={VIEW: "leapfrog"}, engine="kernel")
    kernel = kernel_of(database)
    strategy = next(s for layer, s in kernel.layers if VIEW in layer.relations)
    assert isinstance(strategy, Leapfrog)
    before = None
    plan = None
    stops = False
    for _ in range(epochs):
        name = names[int(rng.integers(len(names)))]
        row = facts[name][int(rng.integers(len(facts[name])))]
        is_there = row in database.view(name)
        if is_there and rng.random() < 0.5:  # a new row, of values that occur
            other = facts[name][int(rng.integers(len(facts[name])))]
            row = (*row[:-1], other[-1])
            is_there = row in database.view(name)
        (trace,) = strategy.traces.by_rule.values()
        if trace.plan is not plan:  # it was recorded again
            plan, before = trace.plan, tables_of(kernel.catalog, trace.plan)
            last = plan.steps[-1]
            assert isinstance(last, Leap)
            stops = last.slot not in trace.rule.head.slots
        assert before is not None
        with database.transaction() as tx:
            (tx.delete if is_there else tx.insert)(name, [row])
        (trace,) = strategy.traces.by_rule.values()
        if trace.plan is not plan:
            continue
        after = tables_of(kernel.catalog, plan)
        distance = trace_distance(plan, before, after)
        first = trace_distance(plan, before, after, stops=True) if stops else distance
        before = after
        yield Update(trace.statistics.operations, distance.edits, rows, first.edits)
