"""A load by transaction leaves a database as ready for small updates as a first load."""

import tidelog
from tests.seeds import seeded
from tidelog.database.database import kernel_of
from tidelog.database.transaction import Transaction

PROGRAM = """
.decl edge(x: number, y: number)
.decl label(x: number, l: number)
.decl path(x: number, y: number)
.decl labelled(l: number, y: number)
path(x, y) :- edge(x, y).
path(x, z) :- path(x, y), edge(y, z).
labelled(l, y) :- label(x, l), path(x, y), label(y, l).
"""


def _facts() -> dict[str, list[tuple[int, int]]]:
    rng = seeded("loads")
    edges = {(rng.randrange(4000), rng.randrange(4000)) for _ in range(4600)}
    return {"edge": sorted(edges), "label": [(x, x % 7) for x in range(4000)]}


def _orders(database: tidelog.Database) -> dict[str, set[tuple[int, ...]]]:
    catalog = kernel_of(database).catalog
    return {name: set(relation.indexes) for name, relation in catalog.relations.items()}


def test_no_update_builds_an_order() -> None:
    facts = _facts()
    first = tidelog.Database(PROGRAM, facts=facts)
    assert len(first.view("path")) > 10_000
    loaded = tidelog.Database(PROGRAM)
    with loaded.transaction() as tx:
        for name, rows in facts.items():
            tx.insert(name, rows)
    ready = _orders(loaded)
    assert ready == _orders(first)
    assert max(map(len, ready.values())) > 1
    for edge in facts["edge"][:3]:
        for change in (Transaction.delete, Transaction.insert):
            with loaded.transaction() as tx:
                change(tx, "edge", [edge])
            assert all(_orders(loaded)[name] <= orders for name, orders in ready.items())
