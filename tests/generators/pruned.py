"""Random programs with relations that keep only some of their candidates.

`pruned_case(seed)` gives a program with `choice-domain` or subsumption, or both, in relations that
are recursive or not, alone or together with others. Values are few, so that candidates compete.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tests.generators.programs import Declaration, Epoch, RandomCase, Row, RuleText

EPOCHS = 4


@dataclass(frozen=True)
class Choosing(Declaration):
    """A relation with a `choice-domain`."""

    keys: str = ""

    def __str__(self) -> str:
        return f"{super().__str__()} choice-domain {self.keys}"


_GIVEN = (
    Declaration("e", ("number", "number", "number")),
    Declaration("s", ("number",)),
    Declaration("w", ("number", "symbol")),
)
_KEYS = {
    2: ("c0", "c1", "c0, c1", "(c0, c1)"),
    3: ("c0", "c1", "c2", "(c0, c1)", "(c1, c2), c0", "c0, c1, c2", "(c0, c2), (c0, c1)"),
}
# Of a relation `@` with two columns. The first ones leave no two rows that are better than each
# other; the next ones can, and the last ones fail on some rows.
_BETTER = (
    ("@(x, a) <= @(x, b)", "b < a"),
    ("@(x, a) <= @(x, b)", "b > a"),
    ("@(x, a) <= @(y, b)", "y < x", "b <= a"),
    ("@(x, a) <= @(_, b)", "b < a", "s(x)"),
    ("@(x, a) <= @(x, b)", "b < a", "!s(b)"),
    ("@(x, a) <= @(y, a)", "n = count : { e(x, _, _) }", "m = count : { e(y, _, _) }", "m > n"),
    ("@(x, a) <= @(x, b)", "b <= a"),
    ("@(x, _) <= @(y, _)", "e(x, y, _)"),
    ("@(x, a) <= @(y, a)", "(s(x) ; s(y))"),
    ("@(x, 1) <= @(x, 2)", "s(x)"),
    ("@(x, a) <= @(y, b)", "x + y = a + b"),
    ("@(x, a) <= @(x, b)", "12 / (b - 3) < a"),
    ("@(x, a) <= @(x, b)", "b < a", "12 / (a - 4) > 1"),
)
_NAMED = (
    ("@(x, a) <= @(x, b)", "b < a"),
    ("@(x, a) <= @(x, b)", "b != a"),
    ("@(x, a) <= @(y, a)", "e(x, y, _)"),
)
_PLAIN = (("e(x, y, _)",), ("e(y, _, x)", "!s(x)"), ("s(x)", "e(_, y, x)"), ("e(x, y, z)", "z < y"))
_STEPS = (
    ("@(x, z)", "e(z, y, _)"),
    ("@(z, x)", "e(x, z, v)", "y = (z + v) band 7"),
    ("@(z, v)", "e(z, x, d)", "y = (v + d) band 15"),
    ("@(x, z)", "@(z, y)"),
    ("@(x, z)", "e(z, y, _)", "12 / (z - 4) != y"),
)
_OTHERS = (("q(x, z)", "e(z, y, _)"), ("@(x, y)", "!s(y)"), ("@(y, x)", "q(x, _)"))


def pruned_case(seed: int) -> RandomCase:
    """Return the random case of a seed."""
    return _Generator(seed).case()


class _Generator:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)

    def case(self) -> RandomCase:
        pick = self._random.choice
        declared: list[Declaration] = list(_GIVEN)
        rules: list[RuleText] = []
        for name in self._random.choice((("p",), ("p",), ("p", "r"))):
            self._pruned(name, declared, rules)
        if pick((True, False)):
            self._named(declared, rules)
        declared.append(Declaration("above", ("number", "number")))
        name = pick([d.name for d in declared if d.name in ("p", "r")])
        below = (
            ("@(x, _)", "n = count : { @(x, _) }"),
            ("@(x, n)", "!@(n, x)"),
            ("@(x, n)", "s(n)"),
        )
        rules.append(RuleText(("above(x, n)",), _about(name, pick(below))))
        facts = {
            d.name: frozenset(self._rows(d, 6)) for d in declared if self._random.random() < 0.7
        }
        return RandomCase(
            self._seed, tuple(declared), tuple(rules), facts, tuple(self._epochs(declared, facts))
        )

    def _pruned(self, name: str, declared: list[Declaration], rules: list[RuleText]) -> None:
        """Add a relation of two numbers, its rules, and which of its candidates are kept."""
        pick, plain = self._random.choice, Declaration(name, ("number", "number"))
        if self._random.random() < 0.5:
            declared.append(Choosing(name, plain.types, keys=pick(_KEYS[2])))
        else:
            declared.append(plain)
            for _ in range(pick((1, 1, 1, 2))):
                head, *body = _about(name, pick(_BETTER))
                rules.append(RuleText((head,), tuple(body)))
        for _ in range(pick((0, 1, 1, 2))):
            rules.append(RuleText((f"{name}(x, y)",), pick(_PLAIN)))
        if pick((True, False)):
            rules.append(RuleText((f"{name}(x, y)",), _about(name, pick(_STEPS))))
        if name == "p" and self._random.random() < 0.4:
            declared.append(Declaration("q", plain.types))
            for body in self._random.sample(_OTHERS, 2):
                rules.append(RuleText(("q(x, y)",), _about(name, body)))
            rules.append(RuleText(("p(x, y)",), pick((("q(x, y)",), ("q(y, x)", "!s(x)")))))

    def _named(self, declared: list[Declaration], rules: list[RuleText]) -> None:
        """Add a relation with a column of text."""
        pick = self._random.choice
        if pick((True, False)):
            types = ("number", "symbol", "number")
            declared.append(Choosing("t", types, keys=pick(_KEYS[3])))
            rules.append(RuleText(("t(x, n, y)",), ("w(x, n)", "e(x, y, _)")))
        else:
            declared.append(Declaration("t", ("number", "symbol")))
            head, *body = _about("t", pick(_NAMED))
            rules.append(RuleText((head,), tuple(body)))
            rules.append(RuleText(("t(x, n)",), ("w(x, n)",)))

    # --- rows ---

    def _rows(self, declaration: Declaration, most: int) -> Iterator[Row]:
        for _ in range(self._random.randint(0, most)):
            yield tuple(map(self._value, declaration.types))

    def _value(self, type_: str) -> object:
        if type_ == "symbol":
            return self._random.choice(("a", "b", "ab", "B"))
        return self._random.randint(-1, 4)

    def _epochs(
        self, declared: list[Declaration], facts: dict[str, frozenset[Row]]
    ) -> Iterator[Epoch]:
        current = {d.name: set(facts.get(d.name, ())) for d in declared}
        for _ in range(EPOCHS):
            epoch: Epoch = {}
            for declaration in declared:
                name = declaration.name
                if self._random.random() < 0.4:
                    continue
                held = sorted(current[name])
                deletes = self._random.sample(held, min(len(held), self._random.randint(0, 2)))
                inserts = [row for row in self._rows(declaration, 2) if row not in deletes]
                epoch[name] = (inserts, deletes)
                current[name] = (current[name] - set(deletes)) | set(inserts)
            yield epoch


def _about(name: str, parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.replace("@", name) for part in parts)
