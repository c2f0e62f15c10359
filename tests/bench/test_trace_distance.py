"""The fast edit distance of traces, against traces written down operation by operation."""

from __future__ import annotations

import pytest

import tidelog
from tests.maintain.tracing import slow_trace
from tests.samples import sample
from tests.seeds import seeded
from tidelog.bench.trace_distance import tables_of, trace_distance
from tidelog.bench.trace_operations import BENCH_RULES, VIEW
from tidelog.database.database import kernel_of
from tidelog.maintain.leapfrog import Leapfrog


@pytest.mark.parametrize("shape", BENCH_RULES)
@pytest.mark.parametrize("number", range(sample(2, 30)))
def test_it_counts_the_same(shape: str, number: int) -> None:
    rng = seeded("trace distance", shape, number)
    program = BENCH_RULES[shape].program
    arities = BENCH_RULES[shape].arities
    facts = {
        name: {tuple(rng.randrange(7) for _ in range(arity)) for _ in range(25)}
        for name, arity in arities.items()
    }
    db = tidelog.Database(program, facts=facts, strategy={VIEW: "leapfrog"})
    kernel = kernel_of(db)
    (found,) = (s for layer, s in kernel.layers if VIEW in layer.relations)
    assert isinstance(found, Leapfrog)
    (trace,) = found.traces.by_rule.values()

    def both() -> tuple[list, list]:
        return tables_of(kernel.catalog, trace.plan), slow_trace(
            kernel.catalog, trace, {}
        ).operations

    tables, slow = both()
    seen = epochs = 0
    while epochs < 6 or not seen:
        epochs += 1
        assert epochs < 60
        with db.transaction() as tx:
            for name, arity in arities.items():
                if rng.random() < 0.6:
                    tx.delete(name, rng.sample(sorted(db.view(name)), 1))
                    tx.insert(name, [tuple(rng.randrange(9) for _ in range(arity))])
        (trace,) = found.traces.by_rule.values()
        old_tables, old_slow = tables, slow
        tables, slow = both()
        distance = trace_distance(trace.plan, old_tables, tables)
        assert distance.before == len(old_slow)
        assert distance.after == len(slow)
        assert distance.edits == len(set(slow) ^ set(old_slow))
        seen += distance.edits


def test_a_join_that_stops_at_a_witness() -> None:
    """It does not depend on the witnesses behind the first one."""
    facts = {
        "a": [(x, x) for x in range(3)],
        "b": [(x, z) for x in range(3) for z in range(20)],
        "c": [(y, z) for y in range(3) for z in range(5, 30)],
    }
    database = tidelog.Database(
        BENCH_RULES["witnesses"].program, facts=facts, strategy={VIEW: "leapfrog"}
    )
    kernel = kernel_of(database)
    (found,) = (s for layer, s in kernel.layers if VIEW in layer.relations)
    assert isinstance(found, Leapfrog)
    (trace,) = found.traces.by_rule.values()
    assert trace.plan.steps[-1].slot == "z"
    edits = []
    tables = tables_of(kernel.catalog, trace.plan)
    for z in (15, 5):
        with database.transaction() as tx:
            tx.delete("c", [(1, z)])
        after = tables_of(kernel.catalog, trace.plan)
        for stops in (False, True):
            edits.append(trace_distance(trace.plan, tables, after, stops=stops).edits)
        tables = after
    whole, behind, again, first = edits
    assert behind == 0
    assert min(whole, again, first) > 0
