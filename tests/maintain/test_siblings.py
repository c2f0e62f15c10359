"""Several sums of the same rows as one relation: which they are, and that they follow changes."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tidelog
from tests.maintain.agreeing import assert_agree, assert_same_rows
from tests.maintain.reopening import History, Rows, check_reopened, seeded_rules
from tests.samples import sample, until
from tests.seeds import seeded
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.errors import EvaluationError
from tidelog.logic.program import Program
from tidelog.plan.lower import lower
from tidelog.reference import evaluate
from tidelog.values.scalars import NAN

Row = tuple[Any, ...]

DECLARED = """
    .decl r(g: number, h: number, v: number)
    .decl q(g: number)
    .decl a(x: number, y: number, z: number)
    .decl m(x: number, y: float, z: number)
"""


def results(program: Program) -> list[str]:
    """Return what the relations of results are called, without their numbers."""
    found = [la.aggregation.result for la in lower(program).layers if la.aggregation is not None]
    return sorted(name.partition("@")[0] for name in found)


@pytest.mark.parametrize(
    ("rule", "names"),
    [
        ("a(g, n, s) :- r(g, _, _), n = count : { r(g, _, _) }, s = sum x : { r(g, _, x) }.",
         ["count+sum"]),
        ("a(g, s, n) :- r(g, _, _), n = count : { r(g, _, _) }, s = sum x : { r(g, _, x) }.",
         ["sum+count"]),
        ("a(0, n, s) :- n = count : { r(_, _, _) }, s = sum x : { r(_, _, x) }.", ["count+sum"]),
        ("a(g, n, s) :- q(g), n = count : { r(g, _, _) }, s = sum x : { r(g, _, x) }, n < s.",
         ["count+sum"]),
        ("m(g, m, s) :- q(g), m = mean x : { r(g, x, _) }, s = sum x : { r(g, _, x) }.",
         ["mean+sum"]),
        ("a(g, n, n) :- r(g, _, _), n = count : { r(g, _, _) }, n = sum x : { r(g, _, x) }.",
         ["count+sum"]),
        ("a(g, n, s) :- q(g), n = sum y : { r(g, y, z), y < z }, s = sum b : { r(g, c, b), c < b}.",
         ["sum+sum"]),
        ("a(g, n, s) :- q(g), n = count : { r(g, _, _) }, s = sum x * y + 1 : { r(g, x, y) }.",
         ["count+sum"]),
        ("a(g, n, s) :- q(g), n = sum x - y : { r(g, x, y) }, s = sum x / y : { r(g, x, y) }.",
         ["sum+sum"]),
        ("a(g, n, m) :- r(g, _, _), n = count : { r(g, _, _) }, s = sum x : { r(g, _, x) },"
         " m = max x : { r(g, _, x) }, s > 1.", ["count+sum", "max"]),
        ("m(g, m, n) :- q(g), n = count x : { a(g, g, x) }, m = mean x : { a(g, g, x) }.",
         ["mean+count"]),
        # Other rows, other groups, or only different values of them.
        ("a(g, n, s) :- q(g), n = count : { r(_, g, _) }, s = sum x : { r(g, _, x) }.",
         ["count", "sum"]),
        ("a(g, n, s) :- q(g), n = count : { r(g, _, 1) }, s = sum x : { r(g, _, x) }.",
         ["count", "sum"]),
        ("a(g, n, s) :- r(g, h, _), n = count : { r(g, h, _) }, s = sum x : { r(g, _, x) }.",
         ["count", "sum"]),
        ("a(g, n, s) :- q(g), n = count : { r(g, _, _) }, s = sum x + g : { r(g, _, x) }.",
         ["count", "sum"]),  # a variable of the target is bound inside
        ("a(g, n, s) :- q(g), n = sum y : { r(g, y, x), y < x }, s = sum y : { r(g, x, y), y < x}.",
         ["sum", "sum"]),
        ("a(g, n, s) :- q(g), n = sum x : { r(g, x, x) }, s = sum x : { r(g, _, x) }.",
         ["sum", "sum"]),
        ("a(g, n, s) :- q(g), n = count x : { r(g, _, x) }, s = sum x : { r(g, _, x) }.",
         ["count", "sum"]),
    ],
)  # fmt: skip
def test_which_aggregates_are_one_relation(rule: str, names: list[str]) -> None:
    program = Program.parse(DECLARED + rule)
    assert results(program) == names
    assert (follow(program, rule) > 0) == ("/" in rule)


def follow(program: Program, label: str) -> int:
    """Follow random changes, few rows in few groups; return how many epochs fail.

    The last epoch is the same for every seed: it is one that divides by zero, if a rule divides.
    """
    rng = seeded(label)
    kernel, reference = KernelEngine(program, {}), ReferenceEngine(program, {})
    failures, epochs = 0, 30
    for number in range(epochs):
        inserted: dict[str, set[Row]] = {
            "r": {tuple(rng.randrange(4) for _ in range(3)) for _ in range(rng.randrange(3))},
            "q": {(rng.randrange(4),)} if rng.random() < 0.3 else set(),
        }
        if number == epochs - 1:
            inserted = {"r": {(2, 1, 0)}, "q": {(2,)}}
        deleted = {
            name: {row for row in rows if rng.random() < 0.3} - inserted[name]
            for name, rows in ((name, kernel.rows(name)) for name in inserted)
        }
        try:
            expected = reference.apply(inserted, deleted)
        except EvaluationError:
            failures += 1
            with pytest.raises(EvaluationError):
                kernel.apply(inserted, deleted)
            kernel.check()
            continue
        changes = kernel.apply(inserted, deleted).changes
        assert changes.keys() == expected.changes.keys()
        for name, change in changes.items():
            assert change.inserted == expected.changes[name].inserted
            assert change.deleted == expected.changes[name].deleted
        for name in program.relations:
            assert kernel.rows(name) == reference.rows(name)
        kernel.check()
    return failures


@pytest.mark.parametrize("target", ["v", "(v + 1)"])
@pytest.mark.parametrize("other", ["r(y, x, _)", "x = y + 1, y < 9"])
def test_within_a_recursion(other: str, target: str) -> None:
    """Groups that only the recursion binds make no difference, unless the rows depend on them.

    They do where adding up rows can fail: then the recursion is recomputed.
    """
    rule = f"""
        q(x) :-
            q(y), n = count : {{ r(y, _, _) }}, s = sum {target} : {{ r(y, _, v) }},
            n <= s, {other}.
    """
    program = Program.parse(DECLARED + rule)
    recomputed = [la for la in lower(program).layers if la.recompute is not None]
    is_recomputed = "r(" not in other and target != "v"
    assert (results(program), len(recomputed)) == (([], 1) if is_recomputed else (["count+sum"], 0))
    assert follow(program, rule) == 0


# --- random rules and histories -----------------------------------------------------------------

VALUES: dict[str, list[object]] = {
    "number": [-(2**63), -(2**53), -1, 0, 1, 7, 2**53 + 1, 2**62, 2**63 - 1],
    "unsigned": [0, 1, 5, 2**31, 2**63, 2**64 - 1],
    "decimal(18, 2)": [Decimal(n) / 100 for n in (-(10**18) + 1, -250, 0, 1, 99, 10**18 - 1)],
    "float": [-float("inf"), -1e300, -1.5, 0.0, 5e-324, 0.1, 2.25, 1e300, float("inf"), NAN],
}
BODIES = {
    "{}": "r({g}, {h}, {v}, {w})",
    "part": 'r({g}, {h}, {v}, {w}), {h} != "c"',
    "join": "asked(k), k <= {g}, r({g}, {h}, {v}, {w})",
}
"""What is aggregated, over all variables: the rule chooses which are its groups."""


class RandomRules:
    """Rules with two to four sums of the same rows, over columns of two types."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.types = [rng.choice(list(VALUES)) for _ in "vw"]
        self.rules = [self._rule(f"view{i}") for i in range(3)]

    @property
    def text(self) -> str:
        """The program."""
        v, w = self.types
        return "\n".join(
            [
                f".decl r(g: number, h: symbol, v: {v}, w: {w})",
                ".decl asked(g: number)",
                *self.rules,
            ]
        )

    def _rule(self, name: str) -> str:
        rng = self._rng
        body = BODIES[rng.choice(list(BODIES))]
        group = rng.choice([(), ("g",), ("g",), ("g", "h")])
        if "{g}" in body and "k <=" in body and "g" not in group:
            body = BODIES["{}"]
        columns = [(variable, "number" if variable == "g" else "symbol") for variable in group]
        literals = []
        for i in range(rng.randint(2, 4)):
            op = rng.choice(["count", "sum", "mean", "total"])
            column = rng.randrange(2)
            type_ = self.types[column]
            names = {n: n if n in group or rng.random() < 0.5 else f"{n}{i}" for n in "ghvw"}
            inner = body.format(**names)
            target = "" if op == "count" else f"{names['vw'[column]]} "
            literals.append(f"x{i} = {op} {target}: {{ {inner} }}")
            result = {"count": "number", "sum": type_}.get(op, "float")
            columns.append((f"x{i}", result))
        if rng.random() < 0.3:
            literals.append("y = max z : { r(_, _, z, _) }")
            columns.append(("y", self.types[0]))
        outer = []
        if "g" in group:
            outer.append(rng.choice(["r(g, _, _, _)", "asked(g)", "r(g, _, _, _), asked(g)"]))
        if "h" in group:
            outer = ["r(g, h, _, _)"] if rng.random() < 0.7 else [*outer, "r(_, h, _, _)"]
        if rng.random() < 0.5:
            outer.append(self._comparison(columns[len(group) :]))
        literals += outer
        rng.shuffle(literals)
        if rng.random() < 0.5:
            rng.shuffle(columns)
        declared = ", ".join(f"{column}: {type_}" for column, type_ in columns)
        head = ", ".join(column for column, _ in columns)
        return f".decl {name}({declared})\n{name}({head}) :- {', '.join(literals)}."

    def _comparison(self, results: list[tuple[str, str]]) -> str:
        """Return a condition on results: the rule drops rows, some of them without a sum."""
        (one, first), (other, second) = self._rng.sample(results, 2)
        if first == second:
            return f"{one} < {other}"
        return f"{one} < {self._rng.choice(VALUES[first][1:-1])}" if first != "float" else "1 < 2"

    def row(self) -> Row:
        """Return a row of `r`; values that overflow are rare."""
        rng = self._rng

        def value(type_: str) -> object:
            few = VALUES[type_][2:-2] if rng.random() < 0.8 else VALUES[type_]
            return rng.choice(few)

        return (rng.randrange(3), rng.choice("abc"), *map(value, self.types))


class RandomHistory(History):
    """Epochs of rows that the rules look at."""

    def __init__(self, rng: random.Random, rules: RandomRules) -> None:
        super().__init__(rng, ("r", "asked"))
        self._rules = rules

    def epoch(self) -> tuple[Rows, Rows]:
        """Return rows to insert and rows to delete."""
        rng = self.rng
        size = rng.choice([0, 1, 1, 3, 6])
        inserted: Rows = {"r": {self._rules.row() for _ in range(size)}, "asked": set()}
        if rng.random() < 0.4:
            inserted["asked"].add((rng.randrange(3),))
        deleted = self.some_held(rng.choice([0.1, 0.4, 1.0]), inserted)
        return inserted, {name: set() for name in deleted} if rng.random() < 0.3 else deleted


@pytest.mark.parametrize("block", range(sample(3, 6)))
def test_random_rules_and_histories(block: int) -> None:
    failures = fused = 0

    def is_enough() -> bool:
        return failures > 0 and fused >= 10

    for number in until(is_enough, least=5, most=25):
        rules, rng = seeded_rules(100 * block + number, RandomRules)
        program, history = Program.parse(rules.text), RandomHistory(rng, rules)
        fused += sum("+" in name for name in results(program))
        kernel, reference = KernelEngine(program, {}), ReferenceEngine(program, {})
        for _ in range(40):
            inserted, deleted = history.epoch()
            try:
                wanted = reference.apply(inserted, deleted)
            except EvaluationError:
                failures += 1
                with pytest.raises(EvaluationError, match="overflows") as raised:
                    kernel.apply(inserted, deleted)
                assert "view" in str(raised.value)
                assert_same_rows(program, kernel, reference)
                continue
            found = kernel.apply(inserted, deleted)
            assert_agree(program, kernel, reference, found, wanted)
            history.held = history.after(inserted, deleted)
        fresh = KernelEngine(program, history.held)
        for name in program.relations:
            assert kernel.levels_and_counts(name) == fresh.levels_and_counts(name), name
    assert fused >= 10, "few of the rules have siblings"
    assert failures > 0, "no sum has overflowed"


@pytest.mark.parametrize("number", range(1000, 1006))
def test_a_database_that_is_opened_again(number: int, tmp_path: Path) -> None:
    rules, rng = seeded_rules(number, RandomRules)
    program, history = Program.parse(rules.text), RandomHistory(rng, rules)
    check_reopened(program, history, tmp_path)


# --- one by one ---------------------------------------------------------------------------------

SHOPS = """
    .decl sale(shop: symbol, day: number, price: number, pieces: unsigned)
    .decl revenue(shop: symbol, n: number, total: number, pieces: unsigned, mean: float)
    revenue(shop, n, t, p, m) :-
        sale(shop, _, _, _), n = count : { sale(shop, _, _, _) },
        p = sum y : { sale(shop, _, _, y) }, t = sum x : { sale(shop, _, x, _) },
        m = mean x : { sale(shop, _, x, _) }.
"""


@pytest.mark.parametrize(
    ("row", "type_"), [(("b", 3, 2**62, 1), "number"), (("b", 3, 1, 2**63), "unsigned")]
)
def test_an_overflow_names_the_view_the_group_and_the_type(row: Row, type_: str) -> None:
    program = Program.parse(SHOPS)
    given = {"sale": {("a", 1, 5, 1), ("b", 2, 2**62, 2**63), ("b", 1, -1, 4)}}
    kernel, reference = KernelEngine(program, given), ReferenceEngine(program, given)
    before = kernel.rows("revenue")
    messages = []
    for engine in (kernel, reference):
        with pytest.raises(EvaluationError) as raised:
            engine.apply({"sale": {row, ("c", 1, 1, 1)}}, {"sale": {("b", 1, -1, 4)}})
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert f"the sum of 2 values overflows `{type_}`" in messages[0]
    assert "revenue(shop, n, t, p, m)" in messages[0] and "shop = 'b'" in messages[0]
    kernel.check()
    assert kernel.rows("revenue") == before
    kernel.apply({"sale": {row}}, {"sale": {("b", 2, 2**62, 2**63)}})
    kernel.check()
    reference.apply({"sale": {row}}, {"sale": {("b", 2, 2**62, 2**63)}})
    assert kernel.rows("revenue") == reference.rows("revenue")


def test_a_view_that_copies_them_has_the_only_rows() -> None:
    kernel = KernelEngine(Program.parse(SHOPS), {"sale": {("a", 1, 5, 1), ("a", 2, 6, 2)}})
    (result,) = kernel.catalog.passed_on
    kernel.apply({"sale": {("a", 3, 1, 1), ("b", 1, 2, 2)}}, {"sale": {("a", 1, 5, 1)}})
    assert (result.stored, kernel.rows("revenue")) == (
        0,
        {("a", 2, 7, 3, 3.5), ("b", 1, 2, 2, 2.0)},
    )
    assert len(result.attached) == 2, "prices and pieces are added up, and nothing else"


def test_one_result_that_stays_while_another_changes() -> None:
    program = Program.parse("""
        .decl r(g: number, i: number, v: number)
        .decl both(g: number, n: number, s: number)
        both(g, n, s) :- r(g, _, _), n = count : { r(g, _, _) }, s = sum x : { r(g, _, x) }.
    """)
    kernel = KernelEngine(program, {"r": {(1, 1, 5), (2, 1, 5)}})
    change = kernel.apply({"r": {(1, 2, 0)}}, {}).changes["both"]
    assert (change.inserted, change.deleted) == ({(1, 2, 5)}, {(1, 1, 5)})
    change = kernel.apply({"r": {(1, 1, 6)}}, {"r": {(1, 1, 5)}}).changes["both"]
    assert (change.inserted, change.deleted) == ({(1, 2, 6)}, {(1, 2, 5)})
    assert "both" not in kernel.apply({"r": {(1, 3, 0)}}, {"r": {(1, 2, 0)}}).changes


def test_a_domain_that_widens_in_the_middle_of_an_epoch() -> None:
    program = Program.parse(
        DECLARED
        + """
        a(g, n, s) :- r(g, _, _), n = sum h : { r(g, h, _) }, s = sum x : { r(g, _, x) }.
    """
    )
    kernel = KernelEngine(program, {"r": {(1, 1, 1), (2, 5, 5)}})
    kernel.apply({"r": {(1, x, 1000 * x) for x in range(2, 40)}}, {"r": {(2, 5, 5)}})
    kernel.apply({"r": {(3, -x, 2**40) for x in range(40)}}, {})
    kernel.check()
    assert kernel.rows("a") == {(1, 780, 779_001), (3, -780, 40 * 2**40)}


def test_more_groups_than_are_added_up_at_a_time() -> None:
    program = Program.parse(SHOPS)
    rows = {(f"{i % 2500}", i, i, 2**63 if i == 7 else i) for i in range(6000)}
    kernel = KernelEngine(program, {"sale": rows})
    assert kernel.rows("revenue") == evaluate(program, {"sale": rows})["revenue"]
    gone = {row for row in rows if row[1] % 3}
    kernel.apply({}, {"sale": gone})
    kernel.check()
    assert kernel.rows("revenue") == evaluate(program, {"sale": rows - gone})["revenue"]


def test_a_state_from_before_they_were_one_relation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {("a", 1, 5, 1), ("a", 2, 6, 2), ("b", 1, 2, 2)}
    with monkeypatch.context() as patched:
        patched.setattr("tidelog.plan.siblings.siblings", lambda body, head: [])
        assert results(Program.parse(SHOPS)) == ["count", "mean", "sum", "sum"]
        with tidelog.Database(SHOPS, facts={"sale": rows}, path=tmp_path) as db:
            before = set(db.view("revenue"))
    with tidelog.Database(SHOPS, path=tmp_path) as db:
        assert db.opened is not None
        assert db.opened.rebuilt == "this version of Tidelog stores the relations in another way"
        assert set(db.view("revenue")) == before == evaluate(db.program, {"sale": rows})["revenue"]


def test_aggregates_over_the_view() -> None:
    db = tidelog.Database(SHOPS, facts={"sale": {("a", 1, 5, 1), ("b", 1, 2, 2), ("b", 2, 1, 2)}})
    view = db.view("revenue")
    assert (view.aggregate("sum", "n"), view.aggregate("max", "total")) == (3, 5)
    with db.transaction() as transaction:
        transaction.delete("sale", [("a", 1, 5, 1)])
    assert (view.aggregate("sum", "n"), view.aggregate("max", "total")) == (2, 3)


def test_each_is_explained() -> None:
    told = tidelog.Database(SHOPS).explain("revenue", plans=True)
    for op in ("count", "sum", "mean"):
        assert f"{op} by shop maintained by sums (Abelian group)" in told
    assert "count, sum, sum, mean over sale by shop" in told
