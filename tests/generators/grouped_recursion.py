"""Random recursions that bind the groups of their own aggregates.

    p(y) :- p(x), n = count : { e(z, _, _), z > x }, y = (x + n) band 15.

`grouped_case(seed)` gives a program with one or two recursive relations. Their rules have one or
two such aggregates: of every kind, nested, and grouped by what another aggregate gives. What a
recursion computes stays within 0 .. 15, so that it terminates.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from tests.generators.programs import Declaration, Epoch, RandomCase, Row, RuleText

EPOCHS = 4

_DECLARED = (
    Declaration("e", ("number", "number", "symbol")),
    Declaration("s", ("number",)),
    Declaration("b", ("number", "number")),
    Declaration("p", ("number",)),
    Declaration("above", ("number", "number")),
)
_PAIRS = Declaration("q", ("number", "number"))
_FUNCTION = Declaration("q", ("number", "number"), functional=True)

# In each, `x` is what the recursion binds and `n` the result. Those of the first tuple never fail.
_SAFE = (
    "n = count : { e(z, _, _), z > x }",
    "n = count : { e(z, w, _), z <= x, w != x }",
    "n = count w : { e(_, w, _), w != x }",
    "n = count : { b(z, k), k < x, z != x }",
    "n = count : { s(z), z > x, !e(z, x, _) }",
    "n = count : { z = range(0, 9), s(z), z > x }",
    "n = max z : { e(z, w, _), w < x }",
    "n = min z : { e(z, _, _), z > x, s(z) }",
    "c = concat t : { e(z, _, t), z <= x }, n = strlen(c)",
    "c = max t : { e(z, _, t), z < x }, n = count : { e(_, _, t), t = c, x > 0 }",
    "d = setof z : { e(z, _, _), z > x }, n = count : { z = range(0, 3), d = d, z != x }",
    "g = mean z : { e(z, _, _), z < x }, n = count : { s(z), to_float(z) < g }",
    "h = total z : { e(z, _, _), z > x }, n = count : { s(z), to_float(z) < h, z != x }",
    "n = max k : { s(z), z != x, k = count : { e(w, _, _), w > z, w != x } }",
    "n = count : { s(z), m = max k : { e(w, k, _), w > z, k != x }, m > z }",
    "k = count : { e(z, _, _), z > x }, n = count : { e(z, _, _), z < k, z != x }",
    "n = count : { e(z, _, _), z > x }, k = max z : { s(z), z != x }, k >= n",
    "n = {registered} z : {{ e(z, _, _), z > x }}",
)
# The second column of `e` holds numbers whose sum is too large now and then.
_OVERFLOWING = (
    "n = sum w : { e(_, w, _), w > x }",
    "n = sum w : { e(z, w, _), z != x }, k = count : { e(z, w, _), z != x }, k < 4",
    "n = sum k : { s(z), z > x, k = sum w : { e(_, w, _), w > z } }",
    "n = {failing} z : {{ e(z, _, _), z > x }}",
)
# What is added up fails for some groups, and not for others.
_FAILING = (
    "n = sum k : { e(_, w, _), k = w + x }",
    "n = max w * w : { e(z, w, _), z < x }",
    "n = count : { e(z, w, _), w + x > z }",
    "n = sum k : { s(z), k = 12 / (z - x) }",
    "n = sum k : { s(z), k = 12 / (z - x) }, m = count : { e(z, _, _), z != x }, m > 2",
    "n = sum k : { s(z), k = 12 / (z - x) }, m = max z : { e(z, _, _), z < x }, m != 3",
    "v = 12 / (x - 4), n = count : { e(z, _, _), z + v > x }",
)
_GUARDS = ("n < 9", "n != x", "n > 0", "x != 3", "!s(x)", "!b(x, _)", "!e(x, n, _)")
# Here something else binds the groups: then the recursion is maintained, unless there are others.
_BINDING = ("b(_, x)",)
# They are false for some groups, and fail for others.
_EXCUSES = ("12 / n < 5", "x + n > 3", "12 / (x - 2) > 1", "12 % (x - 1) != 0", "x * 2 < 9")
_NEXT = ("y = (x + n) band 15", "y = n band 15", "y = max(x, n) band 7", "y = x bxor (n band 3)")

REGISTERED = ("grouped_xor", "grouped_last", "grouped_spread")
FAILING = ("grouped_picky",)
"""Aggregates from Python that a test has to register; the latter fails on 7."""


def grouped_case(seed: int) -> RandomCase:
    """Return the random case of a seed."""
    return _Generator(seed).case()


class _Generator:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)

    def case(self) -> RandomCase:
        rules = [
            RuleText(("b(x, n)",), ("s(x)", "n = count : { e(x, _, _) }")),
            RuleText(("p(x)",), ("s(x)",)),
        ]
        pairs = self._random.choice((None, _PAIRS, _PAIRS, _FUNCTION))
        if pairs is None:
            rules += [self._step("p(x)") for _ in range(self._random.choice((1, 1, 2)))]
        else:
            rules.append(self._rule("q(x, n)", "p(x)"))
            rules.append(RuleText(("p(y)",), ("q(x, n)", self._random.choice(_NEXT))))
            if self._random.random() < 0.6:
                rules.append(self._step(self._random.choice(("p(x)", "q(x, _)", "p(x), q(_, x)"))))
        top = ["p(x)", "n = count : { p(z), z < x }"]
        rules.append(RuleText(("above(x, n)",), (*top, self._random.choice(("!s(x)", "n != 2")))))
        declared = (*_DECLARED, *(() if pairs is None else (pairs,)))
        facts = {d.name: frozenset(self._rows(d, 7)) for d in declared if d.name in ("e", "s")}
        return RandomCase(
            self._seed, declared, tuple(rules), facts, tuple(self._epochs(declared, facts))
        )

    # --- rules ---

    def _step(self, recursion: str) -> RuleText:
        return self._rule("p(y)", recursion, self._random.choice(_NEXT))

    def _rule(self, head: str, recursion: str, *more: str) -> RuleText:
        kind = self._random.random()
        kinds = _FAILING if kind < 0.2 else _OVERFLOWING if kind < 0.4 else _SAFE
        aggregate = self._random.choice(kinds)
        guards = (*_GUARDS, *(_BINDING if kinds is _SAFE else ()))
        guards += () if self._random.random() < 0.6 else _EXCUSES
        registered, failing = self._random.choice(REGISTERED), self._random.choice(FAILING)
        aggregate = aggregate.replace("{registered}", registered).replace("{failing}", failing)
        aggregate = aggregate.replace("{{", "{").replace("}}", "}")
        some = self._random.sample(guards, self._random.choice((0, 0, 1, 1, 2)))
        return RuleText((head,), (recursion, aggregate, *more, *some))

    # --- rows ---

    def _rows(self, declaration: Declaration, most: int) -> Iterator[Row]:
        for _ in range(self._random.randint(0, most)):
            yield tuple(map(self._value, declaration.types))

    def _value(self, type_: str) -> object:
        if type_ == "symbol":
            return self._random.choice("abc")
        if self._random.random() < 0.06:
            return self._random.choice((2**62, -(2**62), 1 << self._random.randint(4, 61)))
        return self._random.randint(-1, 9)

    def _epochs(
        self, declared: tuple[Declaration, ...], facts: dict[str, frozenset[Row]]
    ) -> Iterator[Epoch]:
        current = {d.name: set(facts.get(d.name, ())) for d in declared}
        for _ in range(EPOCHS):
            epoch: Epoch = {}
            for declaration in declared:
                name = declaration.name
                if name == "above" or self._random.random() < (0.3 if name in "es" else 0.8):
                    continue
                held = sorted(current[name])
                count = len(held) if self._random.random() < 0.1 else self._random.randint(0, 2)
                deletes = self._random.sample(held, min(len(held), count))
                inserts = [row for row in self._rows(declaration, 3) if row not in deletes]
                epoch[name] = (inserts, deletes)
                current[name] = (current[name] - set(deletes)) | set(inserts)
            yield epoch
