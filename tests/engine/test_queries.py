"""Queries: their answers are those of the filtered view, whether it is stored or not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Set
from typing import Any

import pytest

import tidelog
from tests.generators.programs import RandomCase, check_cases, literal
from tests.maintain.shapes import kernel_case
from tests.samples import sample
from tests.seeds import seed_blocks
from tidelog.database.core import Options
from tidelog.database.database import open_database
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.queries import Queries
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.logic.program import Program, Relation
from tidelog.plan import order
from tidelog.plan.demand import bound_by_recursion
from tidelog.plan.question import LoweredQuestion
from tidelog.values.types import Row

PROGRAMS = sample(12, 2000)
BLOCK = 6
ASKED = 4  # questions about each relation


class Asking:
    """Asks random questions about random programs."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()

    def check(self, case: RandomCase) -> None:
        """Compare the answers with those that the reference engine gives."""
        program = Program.parse(case.program)
        rng = random.Random(f"questions {case.seed}")
        try:
            reference = ReferenceEngine(program, case.facts)
        except tidelog.DataError:
            self.seen["programs that fail"] += 1
            return
        kernel = KernelEngine(program, case.facts)
        grouped = bound_by_recursion(kernel.catalog.lowered)
        on_demand = Queries(program, kernel.catalog, lambda name: name in grouped)
        self.seen["programs"] += 1
        texts = [
            self._about(program.relations[name], reference.rows(name), rng)
            for name in sorted(program.derived)
            for _ in range(ASKED)
        ]
        texts += [str(rule).split(":-", 1)[1].strip() for rule in case.rules if rule.body]
        for text in texts:
            try:
                expected = list(reference.query(text).reader.rows())
            except tidelog.ProgramError:
                self.seen["not every alternative binds all"] += 1
                continue
            except tidelog.DataError:
                self.seen["questions that fail"] += 1
                for queries in (kernel.queries, on_demand):
                    with pytest.raises(tidelog.DataError):
                        queries.ask(text)
                continue
            self.seen["questions"] += 1
            assert list(kernel.query(text).reader.rows()) == expected, f"stored: {text}"
            assert list(on_demand.ask(text).reader.rows()) == expected, f"on demand: {text}"
            self.seen["answers"] += len(expected)

    def _about(self, relation: Relation, rows: Set[Row], rng: random.Random) -> str:
        """Return a question that binds some columns of a relation to values of a row."""
        args = [f"v{i}" for i in range(relation.arity)]
        if rows:
            row = rng.choice(sorted(rows, key=repr))
            for i, value in enumerate(row):
                text = literal(value)
                if text is not None and rng.random() < 0.5:
                    args[i] = text
        if relation.functional:
            return f"{relation.name}[{', '.join(args[:-1])}] = {args[-1]}"
        return f"{relation.name}({', '.join(args)})"


@pytest.fixture
def hasty_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the first plans that come along: planning takes most of the time."""
    monkeypatch.setattr(order, "_MOST_STATES", 40)


@pytest.mark.usefixtures("hasty_planner")
@pytest.mark.parametrize("seeds", seed_blocks(PROGRAMS, BLOCK, offset=71_000))
def test_random_questions(seeds: range) -> None:
    asking = Asking()
    check_cases(seeds, asking.check, kernel_case)
    print(dict(asking.seen))
    assert asking.seen["questions"] > 2 * len(seeds)
    assert asking.seen["answers"] > 2 * len(seeds)


REACH = """
    .decl edge(x: symbol, y: symbol)
    .decl age(who: symbol, years: number)
    .decl reach(x: symbol, y: symbol)
    reach(x, y) :- edge(x, y).
    reach(x, z) :- reach(x, y), edge(y, z).
"""
EDGES = [("a", "b"), ("b", "c"), ("c", "d"), ("x", "y")]


def test_rows_are_those_of_the_variables_in_order() -> None:
    db = tidelog.Database(REACH, facts={"edge": EDGES, "age": [("b", 7), ("d", 3)]})
    found = db.query('reach("a", x), age(x, n), n > 3, !edge(x, "a")')
    assert found.columns == ("x", "n")
    assert list(found) == [("b", 7)]
    assert found.to_arrow().to_pydict() == {"x": ["b"], "n": [7]}
    assert ("b", 7) in found
    assert list(db.query('edge(_, x), !edge(x, _), reach("a", x)')) == [("d",)]
    assert list(db.query('edge(x, "b") ; edge("c", x)')) == [("a",), ("d",)]
    assert bool(db.query('reach("a", "d")'))
    assert list(db.query('reach("a", "d")')) == [()]
    assert not db.query('reach("d", "a")')
    assert list(db.query('reach("never seen", x)')) == []
    assert list(db.query('edge(x, _), !reach(x, "d"), x != "never seen"')) == [("x",)]
    assert list(db.query('n = count : { reach("a", _) }')) == [(3,)]


def test_answers_stay_and_new_ones_follow_the_database() -> None:
    db = tidelog.Database(REACH, facts={"edge": EDGES})
    before = db.query('reach("a", x)')
    with db.transaction() as tx:
        tx.insert("edge", [("d", f"n{i}") for i in range(500)])
    assert len(before) == 3
    assert len(db.query('reach("a", x)')) == 503
    with db.transaction() as tx:
        tx.delete("edge", [("a", "b")])
    assert len(db.query('reach("a", x)')) == 0


@pytest.mark.parametrize("text", ["reach(x, y), x", "nothing(x)", "edge(x, 3)", "!edge(x, y)", ""])
def test_a_mistake_leaves_nothing_behind(text: str) -> None:
    db = tidelog.Database(REACH, facts={"edge": EDGES})
    for _ in range(2):
        with pytest.raises(tidelog.ProgramError, match="<query>:1:"):
            db.query(text)
    assert len(db.query("edge(x, y)")) == 4


SAME_GENERATION = """
    .decl parent(child: number, parent: number)
    .decl same(x: number, y: number)
    same(x, x) :- parent(_, x).
    same(x, y) :- parent(x, p), parent(y, q), same(p, q).
"""


def test_same_generation_asks_for_ancestors_only() -> None:
    depth = 15
    tree = [(i, i // 2) for i in range(2, 2 ** (depth + 1))]
    engine = KernelEngine.empty(Program.parse(SAME_GENERATION))
    engine.load_facts({"parent": tree})
    first = 2**depth
    assert list(engine.query(f"same({first}, {first + 2**15 - 1})").reader.rows()) == [()]
    assert list(engine.query(f"same({first}, {first // 2})").reader.rows()) == []
    tables = engine.queries
    assert len(engine.query(f"same({first // 2**13}, x)").reader) == 4
    assert tables is engine.queries


@pytest.mark.parametrize("engine", ["stored", "on demand"])
@pytest.mark.parametrize(
    "text",
    [
        'reach("{}", x)',
        'reach(x, "{}"), !edge(x, "{}")',
        'edge("{}", y), n = count : { reach(y, _) }',
        'age("{}", n), reach(x, "{}"), n = min z : { age("{}", z) }',
    ],
)
def test_one_plan_for_other_constants(
    engine: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = Program.parse(REACH)
    facts = {"edge": EDGES, "age": [("b", 7), ("d", 3), ("d", 5)]}
    kernel, reference = KernelEngine(program, facts), ReferenceEngine(program, facts)
    queries = Queries(program, kernel.catalog, lambda name: engine == "stored" and name == "reach")
    plans = []
    planned = LoweredQuestion.program

    def noted(self: LoweredQuestion, *args: Any) -> Any:
        plans.append(self)
        return planned(self, *args)

    monkeypatch.setattr(LoweredQuestion, "program", noted)
    for name in ("a", "b", "d", "never seen", "a"):
        asked = text.replace("{}", name)
        assert list(queries.ask(asked).reader.rows()) == list(reference.query(asked).reader.rows())
    assert len(plans) == 1


def test_an_error_shows_the_question_that_failed() -> None:
    ages = [("b", 0), ("d", 2**63 - 1)]
    db = tidelog.Database(REACH, facts={"edge": EDGES, "age": ages})
    assert list(db.query('age("d", n), m = 6 / n')) == [(2**63 - 1, 0)]
    with pytest.raises(tidelog.EvaluationError, match=r'age."b", n., m = 6 / n'):
        db.query('age("b", n), m = 6 / n')
    assert list(db.query('edge("a", _), k = sum n : { age("b", n) }')) == [(0,)]
    with pytest.raises(tidelog.EvaluationError, match=r'edge."x", _., k = sum n . 2'):
        db.query('edge("x", _), k = sum n * 2 : { age("d", n) }')


PAIRS = """
    .decl low(k: number, x: number)
    .decl high(k: number, y: number)
    .decl above(k: number, n: number, total: number)
    .decl next(k: number, x: number, y: number)
    above(k, n, t) :- low(k, _), n = count : { low(k, x), high(k, y), x < y },
        t = sum y : { low(k, x), high(k, y), x < y }.
    next(k, x, y) :- low(k, x), y = min z : { high(k, z), z > x }.
"""


def test_pairs_that_no_aggregate_stores_are_found_on_demand() -> None:
    rows = {"low": [(1, 2), (1, 5), (2, 3)], "high": [(1, 4), (1, 9), (2, 1)]}
    kernel = KernelEngine(Program.parse(PAIRS), rows)
    assert any(
        layer.aggregation is not None and layer.aggregation.ranged is not None
        for layer in kernel.catalog.lowered.layers
    )
    on_demand = Queries(Program.parse(PAIRS), kernel.catalog, lambda _: False)
    assert list(on_demand.ask("above(1, n, t)").reader.rows()) == [(3, 22)]
    assert list(on_demand.ask("above(2, n, t)").reader.rows()) == [(0, 0)]
    assert list(on_demand.ask("next(1, x, y)").reader.rows()) == [(2, 4), (5, 9)]
    assert list(on_demand.ask("next(k, 3, y)").reader.rows()) == []


@pytest.mark.parametrize(
    "text",
    [
        'edge("a", _), k = sum n : { age(_, n) }',
        "edge(x, _), k = sum n : { age(_, n) }",
        "k = sum n : { age(_, n) }",
        'edge("never seen", _), k = sum n : { age(_, n) }',
        'edge("a", x), k = sum n : { age(x, n) }',
        'edge("x", y), k = sum n : { age("b", n) }, m = 10 / k',
        "edge(x, _), k = sum n : { age(_, n) }, j = sum n + 1 : { age(_, n) }, k < 7, 1 = 2 - j",
        "edge(x, _), k = sum 6 / n : { age(_, n) }",
        'edge(x, _), k = sum 6 / n : { age(_, n) }, x = "never seen"',
        "edge(x, _), k = sum n : { age(_, n) }, c = count : { edge(x, _) }, c > 1",
        "edge(x, _), k = sum n : { age(_, n) } ; edge(x, _), k = 1",
    ],
)
def test_an_aggregate_without_a_value_is_an_error_unless_it_is_excused(text: str) -> None:
    program = Program.parse(REACH)
    facts = {"edge": EDGES, "age": [("b", 0), ("d", 2**63 - 1), ("e", 5)]}
    kernel, reference = KernelEngine(program, facts), ReferenceEngine(program, facts)
    try:
        expected = list(reference.query(text).reader.rows())
    except tidelog.EvaluationError as error:
        for _ in range(2):
            with pytest.raises(tidelog.EvaluationError) as met:
                kernel.query(text)
            assert met.value.reason == error.reason
            assert met.value.rule == error.rule
            assert not any(name.startswith("?") for name in met.value.values)
    else:
        assert list(kernel.query(text).reader.rows()) == expected


def test_only_groups_that_are_asked_for_can_be_errors() -> None:
    text = """
        .decl age(who: symbol, years: number)
        .decl person(who: symbol)
        .decl excused(who: symbol)
        .decl total(who: symbol, years: number)
        .decl other(who: symbol, years: number)
        total(x, k) :- person(x), k = sum n : { age(x, n) }, !excused(x).
        other(x, k + 1) :- total(x, k), x != "a".
    """
    facts = {
        "age": [("a", 1), ("b", 2**63 - 1), ("b", 5), ("c", 2**63 - 1), ("c", 5)],
        "person": [("a",), ("b",), ("c",)],
        "excused": [("c",)],
    }
    db = open_database(text, Options(on_demand=True), facts)
    assert list(db.query('total("a", k)')) == [(1,)]
    assert list(db.query('total("c", k)')) == []
    assert list(db.query('other("a", k) ; other("c", k)')) == []
    for question in ("total(x, k)", 'total("b", k)', 'x = "b", other(x, k)', "other(_, k)"):
        with pytest.raises(tidelog.EvaluationError, match="the sum of 2 values overflows"):
            db.query(question)
    assert list(db.query('total("a", k)')) == [(1,)]
