"""Aggregates that have no value: an error exactly where nothing else in the rule is false."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog
from tests.maintain.agreeing import assert_agree, assert_same_rows
from tests.maintain.reopening import History, Rows, check_reopened, seeded_rules
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.oracle import ReferenceEngine
from tidelog.errors import EvaluationError
from tidelog.logic import registry
from tidelog.logic.program import Program
from tidelog.maintain.unexcused import Unexcused
from tidelog.plan.lower import lower

Row = tuple[int, ...]

LARGE = 2**62
DECLARED = """
    .decl r(g: number, v: number)
    .decl t(g: number, v: number)
    .decl big(n: number)
    .decl asked(g: number)
"""


def no_seven(values: frozenset[int]) -> int:
    """A function that has no value for some sets."""
    if 7 in values:
        raise ValueError("a seven")
    return len(values)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    try:
        tidelog.aggregate("picky", tidelog.SetFunction(no_seven), takes="number", gives="number")
        tidelog.aggregate(
            "brittle",
            tidelog.Group(lambda a, b: a ^ b, lambda a: a, 0, lift=lambda v: 7 // (v - 7) ^ v),
            takes="number", gives="number", samples=(1, 2, 3),
        )  # fmt: skip
        yield
    finally:
        for name in registry.registered():
            tidelog.forget_aggregate(name)


def fails(engine: KernelEngine | ReferenceEngine, inserted: Rows, deleted: Rows) -> bool:
    try:
        engine.apply(inserted, deleted)
    except EvaluationError:
        return True
    return False


def errors_of(program: Program) -> int:
    """Return how many rules say that a failure is an error."""
    return sum(len(layer.rules) for layer in lower(program).layers if layer.errors_of is not None)


# --- one by one ---------------------------------------------------------------------------------

COUNT_AND_SUM = "n = count : { r(_, _) }, s = sum v : { r(_, v) }"


@pytest.mark.parametrize(
    ("body", "big", "is_error", "rules"),
    [
        # Two rows, whose sum overflows.
        (COUNT_AND_SUM, [], True, 0),
        (f"{COUNT_AND_SUM}, n < 2", [], False, 1),
        (f"n < 2, {COUNT_AND_SUM}", [], False, 1),
        (f"{COUNT_AND_SUM}, n < 3", [], True, 1),
        (f"{COUNT_AND_SUM}, s < 2", [], True, 0),
        (f"{COUNT_AND_SUM}, s < n", [], True, 0),
        (f"{COUNT_AND_SUM}, s < n, n > 2", [], False, 1),
        (f"{COUNT_AND_SUM}, big(n)", [3], False, 1),
        (f"{COUNT_AND_SUM}, big(n)", [2], True, 1),
        (f"{COUNT_AND_SUM}, !big(n)", [2], False, 1),
        (f"{COUNT_AND_SUM}, !big(s)", [2], True, 0),
        (f"{COUNT_AND_SUM}, big(s)", [], False, 1),
        (f"{COUNT_AND_SUM}, big(s)", [5], True, 1),
        (f"{COUNT_AND_SUM}, big(s), s > 7", [5], False, 1),
        (f"{COUNT_AND_SUM}, z = s + 1, z < n", [], True, 0),
        (f"{COUNT_AND_SUM}, z = n + 1, z < 2", [], False, 1),
        (f"{COUNT_AND_SUM}, z = n / (n - 2), z < 2", [], True, 1),
        (f"{COUNT_AND_SUM}, z = n / (n - 2), z < 2, n > 2", [], False, 1),
        (f"{COUNT_AND_SUM}, x = max v : {{ r(_, v) }}", [], True, 0),
        (f"{COUNT_AND_SUM}, x = max v : {{ t(_, v) }}", [], False, 1),
        (f"{COUNT_AND_SUM}, x = sum v : {{ t(_, v) }}", [], True, 0),
        (f"{COUNT_AND_SUM}, x = sum v : {{ t(_, v) }}, x > 0", [], False, 1),
        (f"{COUNT_AND_SUM}, m = mean v : {{ r(_, v) }}, m < 5.0", [], False, 1),
        (f"{COUNT_AND_SUM}, m = mean v : {{ r(_, v) }}, m > 5.0", [], True, 1),
        (f"{COUNT_AND_SUM}, m = total v : {{ r(_, v) }}, m > 5.0", [], True, 1),
        (f"{COUNT_AND_SUM}, x = sum v : {{ t(n, v) }}, x > 0", [], False, 3),
        (f"{COUNT_AND_SUM}, x = sum v : {{ t(s, v) }}, x > 0", [], True, 1),
        ("s = count : { r(_, _) }, n = s, s = sum v : { r(_, v) }, s < 2", [], False, 1),
        ("s = sum v : { r(_, v) }, n = s, s = count : { r(_, _) }, s < 2", [], True, 0),
        ("asked(n), s = sum v : { r(n, v) }", [], False, 1),
        ("r(n, _), s = sum v : { r(n, v) }", [], True, 0),
        ("r(n, _), s = sum v : { r(n, v) }, x = picky v : { r(n, v) }", [], True, 0),
    ],
)  # fmt: skip
def test_what_excuses_a_failure(body: str, big: list[int], is_error: bool, rules: int) -> None:
    program = Program.parse(f"{DECLARED} .decl a(n: number, s: number) a(n, s) :- {body}.")
    assert errors_of(program) == rules
    kernel, reference = KernelEngine(program, {}), ReferenceEngine(program, {})
    rows = {"r": {(1, LARGE), (1, LARGE + 1)}, "big": {(n,) for n in big}}
    assert fails(reference, rows, {}) == is_error, "the oracle has changed"
    assert fails(kernel, rows, {}) == is_error
    assert_same_rows(program, kernel, reference)
    if is_error:
        with pytest.raises(EvaluationError):
            KernelEngine(program, rows)
    else:
        assert KernelEngine(program, rows).rows("a") == reference.rows("a") == set()


def test_a_failure_becomes_an_error_later_and_is_right_again_after_deletions() -> None:
    program = Program.parse(f"""
        {DECLARED}
        .decl a(g: number, n: number, s: number)
        a(g, n, s) :- r(g, _), n = count : {{ r(g, _) }}, s = sum v : {{ r(g, v) }}, !big(n).
    """)
    rows: Rows = {"r": {(1, LARGE), (1, LARGE + 1), (2, 5)}, "big": {(2,)}}
    kernel = KernelEngine(program, rows)
    assert kernel.rows("a") == {(2, 1, 5)}
    message = (
        r"the sum of 2 values overflows `number`\n"
        r"  rule: a\(g, n, s\) :- .*\n"
        r"  with: g = 1$"
    )
    with pytest.raises(EvaluationError, match=message):
        kernel.apply({}, {"big": {(2,)}})
    kernel._check()
    with pytest.raises(EvaluationError, match="the sum of 3 values overflows"):
        kernel.apply({"r": {(1, 0), (3, 1)}}, {})
    kernel._check()
    assert kernel.rows("a") == {(2, 1, 5)} and kernel.rows("big") == {(2,)}
    kernel.apply({"r": {(1, -7)}}, {"r": {(1, LARGE)}})
    assert kernel.rows("a") == {(2, 1, 5)}
    kernel.apply({}, {"big": {(2,)}})
    assert kernel.rows("a") == {(1, 2, LARGE - 6), (2, 1, 5)}
    kernel._check()


def test_too_many_cases_are_errors_at_once() -> None:
    """A rule for each way in which ten sums can fail would be too much."""
    sums = ", ".join(f"x{i} = sum v : {{ r({i}, v) }}, x{i} < 5" for i in range(10))
    program = Program.parse(f"{DECLARED} .decl a(n: number) a(x0) :- {sums}.")
    assert errors_of(program) == 0
    kernel = KernelEngine(program, {"r": {(3, 1)}})
    with pytest.raises(EvaluationError, match="overflows"):
        kernel.apply({"r": {(3, LARGE), (3, LARGE + 1)}}, {})
    assert kernel.rows("a") == {(0,)}


def test_nothing_is_looked_at_while_nothing_has_failed() -> None:
    program = Program.parse(f"""
        {DECLARED}
        .decl a(g: number, n: number, s: number)
        a(g, n, s) :- asked(g), n = count : {{ r(g, _) }}, s = sum v : {{ r(g, v) }}, n < 3.
    """)
    kernel = KernelEngine(program, {"r": {(1, 1)}, "asked": {(1,), (2,)}})
    kernel.apply({"r": {(1, 2), (2, 2)}, "asked": {(3,)}}, {"asked": {(2,)}})
    (errors,) = (strategy for strategy in kernel.strategies if isinstance(strategy, Unexcused))
    assert not any(joins._joins for joins in errors._joins), "a join has been planned"


# --- random rules and histories -----------------------------------------------------------------

VALUES = [-(2**63), -1, 0, 1, 7, LARGE, LARGE + 1, 2**63 - 2, 2**63 - 1]
INNER = [
    "r({g}, {v})", "r({g}, {v})", "r({g}, {v})", "r(_, {v})", "r({g}, {v}), {v} != 0",
    "t({g}, {v})", "t(_, {v})",
]  # fmt: skip


class RandomRules:
    """Rules with some aggregates, and conditions on their results."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.rules = [self._rule(f"view{i}") for i in range(3)]

    @property
    def text(self) -> str:
        """The program."""
        return "\n".join([DECLARED, *self.rules])

    def _rule(self, name: str) -> str:
        rng = self._rng
        literals, names, columns = [], [], []
        same = rng.choice(INNER)
        for i in range(rng.randint(1, 3)):
            op = rng.choice(["count", "sum", "sum", "sum", "mean", "max", "picky", "brittle"])
            column = rng.choice(names) if names and rng.random() < 0.08 else f"x{i}"
            inner = same if rng.random() < 0.5 else rng.choice(INNER)
            group = (
                rng.choice(names) if names and rng.random() < 0.08 and column not in names else "g"
            )
            body = inner.format(g=group, v="_" if op == "count" and "!=" not in inner else "v")
            target = "" if op == "count" else "v "
            if op == "mean":
                column = f"m{i}"
            else:
                names.append(column)
            columns.append((column, "float" if op == "mean" else "number"))
            literals.append(f"{column} = {op} {target}: {{ {body} }}")
        literals.append(rng.choice(["asked(g)", "r(g, _)", "t(g, _)", "asked(g), r(g, _)"]))
        for _ in range(rng.choice([0, 1, 1, 1, 2])):
            literals.append(self._condition(names, columns))
        rng.shuffle(literals)
        columns = [("g", "number"), *dict(columns).items()]
        declared = ", ".join(f"{column}: {type_}" for column, type_ in columns)
        head = ", ".join(column for column, _ in columns)
        return f".decl {name}({declared})\n{name}({head}) :- {', '.join(literals)}."

    def _condition(self, names: list[str], columns: list[tuple[str, str]]) -> str:
        rng = self._rng
        floats = [column for column, type_ in columns if type_ == "float"]
        if floats and (not names or rng.random() < 0.3):
            return f"{rng.choice(floats)} < {rng.choice(['0.5', '1.5', '1e10'])}"
        one, other = rng.choice(names), rng.choice(names)
        return rng.choice(
            [
                f"{one} < {rng.choice([1, 2, 3])}", f"{one} > {rng.choice([-1, 0, 1, 2])}",
                f"{one} < {other}", f"{one} != {other}", f"big({one})", f"!big({one})",
                f"z = {one} + 1, z > 1", f"{one} - {other} < 3", f"4 / {one} > 1",
                f"{one} = y, asked(y)", f"t({one}, _)", f"{one} < g",
            ]
        )  # fmt: skip

    def row(self, relation: str) -> Row:
        """Return a row to insert."""
        rng = self._rng
        if relation in ("big", "asked"):
            return (rng.randrange(4),)
        return (rng.randrange(3), rng.choice(VALUES))


class RandomHistory(History):
    """Epochs of rows that the rules look at."""

    def __init__(self, rng: random.Random, rules: RandomRules) -> None:
        super().__init__(rng, ("r", "t", "big", "asked"))
        self._rules = rules

    def epoch(self) -> tuple[Rows, Rows]:
        """Return rows to insert and rows to delete."""
        rng = self.rng
        inserted: Rows = {name: set() for name in self.held}
        for _ in range(rng.choice([0, 1, 1, 2, 4])):
            name = rng.choice(["r", "r", "r", "t", "big", "asked"])
            inserted[name].add(self._rules.row(name))
        return inserted, self.some_held(rng.choice([0.0, 0.0, 0.1, 0.3, 0.8]), inserted)


def is_in_doubt(kernel: KernelEngine) -> bool:
    """Return whether some group has no value, and that is no error."""
    catalog = kernel._catalog
    return any(len(catalog.relations[name]) for name in catalog.failures)


@pytest.mark.parametrize("block", range(4))
def test_random_rules_and_histories(block: int) -> None:
    failures = excused = 0
    for number in range(12):
        rules, rng = seeded_rules(20 * block + number, RandomRules)
        program, history = Program.parse(rules.text), RandomHistory(rng, rules)
        kernel, reference = KernelEngine(program, {}), ReferenceEngine(program, {})
        for _ in range(25):
            inserted, deleted = history.epoch()
            after = history.after(inserted, deleted)
            try:
                wanted = reference.apply(inserted, deleted)
            except EvaluationError:
                failures += 1
                assert fails(kernel, inserted, deleted), f"no error: +{inserted} -{deleted}"
                assert_same_rows(program, kernel, reference)
                continue
            found = kernel.apply(inserted, deleted)
            assert_agree(program, kernel, reference, found, wanted)
            excused += is_in_doubt(kernel)
            history.held = after
        fresh = KernelEngine(program, history.held)
        for name in kernel._catalog.relations:
            assert kernel.state(name) == fresh.state(name), name
    assert failures > 5, "few epochs have failed"
    assert excused > 5, "few failures were excused"


@pytest.mark.parametrize("number", range(100, 106))
def test_a_database_that_is_opened_again(number: int, tmp_path: Path) -> None:
    rules, rng = seeded_rules(number, RandomRules)
    program, history = Program.parse(rules.text), RandomHistory(rng, rules)
    check_reopened(program, history, tmp_path)
