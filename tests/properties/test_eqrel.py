"""An `eqrel` has the pairs of the classes that union-find gives."""

from __future__ import annotations

from tests.samples import sample
from tests.seeds import seeded
from tidelog.logic.graph import UnionFind
from tidelog.logic.program import Program
from tidelog.reference import evaluate

PROGRAM = """
.decl same(x: number, y: number) eqrel
.decl pair(x: number, y: number)
same(x, y) :- pair(x, y).
"""


def test_an_eqrel_is_the_classes_of_union_find() -> None:
    random = seeded("eqrel")
    program = Program.parse(PROGRAM)
    for _ in range(sample(20, 300)):
        given, derived = (
            {(random.randrange(12), random.randrange(12)) for _ in range(random.randrange(8))}
            for _ in range(2)
        )
        classes = UnionFind[int]()
        for a, b in given | derived:
            classes.union(a, b)
        values = {value for pair in given | derived for value in pair}
        expected = {(a, b) for a in values for b in values if classes.find(a) == classes.find(b)}
        assert evaluate(program, {"same": given, "pair": derived})["same"] == expected
