"""The join interpreter against nested loops: every order of the variables, every place to stop."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

import numpy as np
import pytest

from tests.kernel.words import LEAST, MOST
from tests.samples import sample, until
from tests.seeds import seeded
from tests.store.model import words_of
from tidelog.join import program as compiled
from tidelog.join.compiler import Output, compile_join
from tidelog.join.program import JoinProgram
from tidelog.kernel import join_layout as k
from tidelog.kernel.marks import DEAD_NOW, FLAG
from tidelog.logic.program import Comparison
from tidelog.plan.body import AtomUse, Check
from tidelog.plan.order import Orderer, Stats
from tidelog.plan.steps import Plan
from tidelog.store.domain import Domain
from tidelog.store.layout import Layout
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run, descriptors_of
from tidelog.store.versions import Version
from tidelog.values.types import NUMBER

Row = tuple[int, ...]
Binding = dict[str, int]

POOLS = {
    "small": [0, 1, 2, 3],
    "negative": [-3, -1, 0, 2],
    "two words": [0, 1, 2**40, 2**40 + 1],
    "raw": [LEAST, LEAST + 1, -1, 0, MOST - 1, MOST],
}
HOLDS: dict[Comparison, Callable[[int, int], bool]] = {
    Comparison.EQ: lambda a, b: a == b,
    Comparison.NE: lambda a, b: a != b,
    Comparison.LT: lambda a, b: a < b,
    Comparison.LE: lambda a, b: a <= b,
    Comparison.GT: lambda a, b: a > b,
    Comparison.GE: lambda a, b: a >= b,
}


@dataclass
class Stored:
    """A relation in the middle of an epoch, and the rows that each version shows, with levels."""

    relation: StoredRelation
    shown: dict[Version, dict[Row, int]]
    flagged: set[Row]
    """Rows in the bucket of a level repair; every version shows them."""

    def seen(self, version: Version, *, excludes_flagged: bool) -> dict[Row, int]:
        """Return the rows that an atom reads."""
        rows = self.shown[version]
        if excludes_flagged:
            rows = {row: level for row, level in rows.items() if row not in self.flagged}
        return rows


def random_relation(rng: random.Random, arity: int, pool: list[int], domain: Domain) -> Stored:
    share = rng.choice([0.2, 0.6, 0.95])
    rows = [row for row in product(pool, repeat=arity) if rng.random() < share]
    rows = sorted(rng.sample(rows, min(len(rows), 25)))
    before = {row: rng.randint(0, 3) for row in rows if rng.random() < 0.7}
    added = {row: rng.randint(0, 3) for row in rows if row not in before}
    gone = {row for row in before if rng.random() < 0.3}
    relation = StoredRelation("r", [domain] * arity)
    rows = list(before)
    parts = [rows[::2], rows[1::2]] if rng.random() < 0.5 else [rows]
    relation.replace_runs(
        [
            Run(words_of(relation, part), levels_of({row: before[row] for row in part}))
            for part in parts
        ]
    )
    relation.set_marks(words_of(relation, gone), np.full(len(gone), DEAD_NOW, np.int32))
    relation.add(words_of(relation, added), levels_of(added), None)
    kept = {row: level for row, level in before.items() if row not in gone}
    flagged = {row: level for row, level in {**kept, **added}.items() if rng.random() < 0.2}
    relation.set_marks(words_of(relation, flagged), levels_of(flagged) | np.int32(FLAG))
    shown = {
        Version.OLD: before,
        Version.KEPT: kept,
        Version.NEW: {**kept, **added},
        Version.EITHER: {**before, **added},
    }
    return Stored(relation, shown, set(flagged))


def levels_of(rows: dict[Row, int]) -> Any:
    return np.array([rows[row] for row in sorted(rows)], np.int32)


class Body:
    """A random body over random relations."""

    def __init__(self, rng: random.Random, pool: list[int]) -> None:
        self.rng, self.pool = rng, pool
        self.domain = Domain()
        self.domain.widen(min(pool), max(pool))
        stored = [random_relation(rng, arity, pool, self.domain) for arity in (1, 2, 2, 3)]
        slots = [f"x{i}" for i in range(rng.randint(1, 5))]
        self.constants: dict[str, int] = {}
        self.atoms: list[AtomUse] = []
        self.stored: list[Stored] = []
        self.versions: list[Version] = []
        self.excludes: list[bool] = []
        for _ in range(rng.choice([1, 2, 3, 3, 4])):
            self._add(rng.choice(stored), slots, negated=False)
        self.bound = sorted({s for atom in self.atoms for s in atom.slots} - set(self.constants))
        for _ in range(rng.choice([0, 0, 1, 2])):
            self._add(rng.choice(stored), self.bound, negated=True)
        self.checks: list[Check] = []
        for _ in range(rng.choice([0, 0, 1, 2]) if self.bound else 0):
            other = rng.choice([*self.bound, "#limit"])
            self.constants["#limit"] = rng.choice(pool)
            op = rng.choice(list(Comparison))
            self.checks.append(Check(op, rng.choice(self.bound), other, NUMBER))
        positive = [i for i, atom in enumerate(self.atoms) if not atom.negated]
        self.driver = rng.choice([None, *positive])

    def _add(self, stored: Stored, slots: list[str], *, negated: bool) -> None:
        args: list[str | None] = []
        free = list(slots)
        for _ in stored.relation.domains:
            kind = self.rng.random()
            if free and kind < 0.75:
                args.append(free.pop(self.rng.randrange(len(free))))
            elif kind < 0.9 and not negated:
                args.append(None)
            else:
                constant = f"#{len(self.constants)}"
                # Now and then one that the domain does not cover.
                self.constants[constant] = self.rng.choice([*self.pool * 4, 77, -77])
                args.append(constant)
        self.atoms.append(AtomUse("r", tuple(args), negated))
        self.stored.append(stored)
        self.versions.append(self.rng.choice(list(Version)))
        self.excludes.append(self.rng.random() < 0.5)

    def _seen(self, i: int) -> dict[Row, int]:
        """Return the rows that an atom reads, with their levels."""
        return self.stored[i].seen(self.versions[i], excludes_flagged=self.excludes[i])

    # --- nested loops ---

    def solutions(self) -> Iterator[tuple[Binding, int]]:
        """Yield each solution, and the largest level of its rows."""
        found: list[tuple[Binding, int]] = [(dict(self.constants), 0)]
        for i, atom in enumerate(self.atoms):
            if not atom.negated:
                rows = self._seen(i).items()
                found = [
                    (extended, max(largest, level))
                    for binding, largest in found
                    for row, level in rows
                    if (extended := unify(atom, row, binding)) is not None
                ]
        yield from (solution for solution in found if self._holds(solution[0]))

    def _holds(self, binding: Binding) -> bool:
        for i, atom in enumerate(self.atoms):
            row = tuple(binding[str(arg)] for arg in atom.args) if atom.negated else ()
            if atom.negated and row in self._seen(i):
                return False
        return all(HOLDS[c.op](binding[c.left], binding[c.right]) for c in self.checks)

    # --- joins ---

    def plans(self, most: int) -> Iterator[Plan]:
        """Yield plans, each with another order of the variables, in random order."""
        sizes = [float(self.rng.randint(1, 50)) for _ in self.atoms]

        def stats(i: int) -> Stats:
            return Stats(sizes[i], (sizes[i],) * len(self.atoms[i].args))

        path = Path()
        for _ in islice(path.every(), most):
            known = frozenset(self.constants)
            yield Forced(self.atoms, self.checks, known, self.driver, stats, path).plan()

    def program(self, plan: Plan, mode: int, *, packed: bool) -> JoinProgram:
        layouts = [
            Layout(order, stored.relation.domains)
            for stored, order in zip(self.stored, plan.orders, strict=True)
        ]
        in_atoms = {slot for atom in self.atoms for slot in atom.slots}
        domains = dict.fromkeys(in_atoms, self.domain)
        constants = {
            slot: self.domain.code(value) if slot in in_atoms else value
            for slot, value in self.constants.items()
        }
        if packed:
            head = Layout(range(len(self.bound)), [self.domain] * len(self.bound))
            places = [(slot, *map(int, head.by_column[i])) for i, slot in enumerate(self.bound)]
            output = Output(max(1, head.words), tuple(places))
        else:
            places = [(slot, i, 0, -1) for i, slot in enumerate(self.bound)]
            output = Output(max(1, len(places)), tuple(places))
        return compile_join(plan, layouts, domains, constants, output, mode)

    def run(self, plan: Plan, chunk: int, *, leveled: bool, packed: bool) -> Counter[Row]:
        """Return the heads that a join finds, as codes; the last column is when each fires."""
        mode = k.LOOK_BACK if leveled else k.PLAIN
        program = self.program(plan, mode, packed=packed)
        for i, (atom, order) in enumerate(zip(plan.atoms, plan.orders, strict=True)):
            index, version = self.stored[i].relation.index(order), self.versions[i]
            runs = index.all_runs() if version.with_tail else index.runs
            uses_level = leveled and not atom.negated
            readable = program.read(
                i, descriptors_of(runs), runs, version.limit, uses_level, self.excludes[i]
            )
            if not readable and not atom.negated:
                return Counter()
        out = np.full((program.out_height, chunk), -7, np.int64)
        found: Counter[Row] = Counter()
        for n in program.run(out):
            found.update(tuple(row) for row in out[:, :n].T.tolist())
        return found

    def expected(self, *, leveled: bool, packed: bool) -> Counter[Row]:
        """Return the same by nested loops."""
        head = Layout(range(len(self.bound)), [self.domain] * len(self.bound))
        found: Counter[Row] = Counter()
        for binding, level in self.solutions():
            codes = [binding[slot] - self.domain.bias for slot in self.bound]
            words = codes or [0]
            if packed:
                words = [0] * max(1, head.words)
                for code, (word, shift, _) in zip(codes, head.by_column.tolist(), strict=True):
                    words[word] += code << shift
            found[(*words, *([1 + level] if leveled else []))] += 1
        return found


def unify(atom: AtomUse, row: Row, binding: Binding) -> Binding | None:
    extended = dict(binding)
    for arg, value in zip(atom.args, row, strict=True):
        if arg is not None and extended.setdefault(arg, value) != value:
            return None
    return extended


class Path:
    """A way down the tree of choices, and from each way to the next."""

    def __init__(self) -> None:
        self._taken: list[int] = []
        self._width: list[int] = []
        self._depth = 0

    def choose(self, options: int) -> int:
        """Return which of so many options this way takes."""
        if self._depth == len(self._taken):
            self._taken.append(0)
            self._width.append(options)
        self._depth += 1
        return self._taken[self._depth - 1]

    def every(self) -> Iterator[None]:
        """Yield once for each way there is."""
        while True:
            self._depth = 0
            yield
            while self._taken and self._taken[-1] + 1 == self._width[-1]:
                self._taken.pop()
                self._width.pop()
            if not self._taken:
                return
            self._taken[-1] += 1


class Forced(Orderer):
    """An orderer that follows a path, whatever it costs."""

    def __init__(self, *args: Any) -> None:
        *rest, self._path = args
        super().__init__(*rest)

    def _choices(self, state: Any) -> Iterator[Callable[[Any], None]]:
        options = list(super()._choices(state))
        yield options[self._path.choose(len(options))]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("leveled", [False, True])
def test_every_order_finds_what_nested_loops_find(pool: str, leveled: bool) -> None:
    rng = seeded(f"join{pool}{leveled}")
    plans = found = 0

    def is_enough() -> bool:
        return plans > 100 and found > 200

    for number in until(is_enough, least=sample(100, 250), most=1000):
        body = Body(rng, POOLS[pool])
        packed = rng.random() < 0.5
        if leveled:  # levels are kept of rows that are alive
            body.versions = [Version.NEW] * len(body.versions)
        expected = body.expected(leveled=leveled, packed=packed)
        for plan in body.plans(12):
            told = (number, body.atoms, body.checks, plan.steps)
            assert body.run(plan, 64, leveled=leveled, packed=packed) == expected, told
            plans += 1
        found += sum(expected.values())
    print(f"{plans} plans, {found} instantiations")
    assert is_enough(), "hardly anything is joined"


@pytest.mark.parametrize("chunk", [1, 2, 3, 5])
@pytest.mark.parametrize("fuel", [2, 3, 7, 10**6])
def test_joins_go_on_from_wherever_they_stopped(
    chunk: int, fuel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "FUEL", fuel)
    rng = seeded(f"resume{chunk}{fuel}")
    found = 0

    def is_enough() -> bool:
        return found > 10

    for number in until(is_enough, least=25, most=250):
        body = Body(rng, POOLS[rng.choice(list(POOLS))])
        packed, leveled = rng.random() < 0.6, rng.random() < 0.3
        if leveled:
            body.versions = [Version.NEW] * len(body.versions)
        expected = body.expected(leveled=leveled, packed=packed)
        for plan in body.plans(2):
            told = (number, body.atoms, body.checks, plan.steps)
            assert body.run(plan, chunk, leveled=leveled, packed=packed) == expected, told
        found += sum(expected.values())
    assert is_enough(), "hardly anything is joined"


def test_there_are_joins_of_every_kind() -> None:
    """What the tests above run: every step of the interpreter but those of computations."""
    rng = seeded("kinds")
    ops: Counter[int] = Counter()
    wanted = {
        k.LEAP: 100, k.SCAN: 100, k.SEEK: 100, k.TEST: 50, k.ABSENT: 50, k.EMIT: 100,
        k.SCAN_EMIT: 10,
    }  # fmt: skip

    def is_enough() -> bool:
        return all(ops[op] >= least for op, least in wanted.items())

    for _ in until(is_enough, least=150, most=600):
        body = Body(rng, POOLS[rng.choice(list(POOLS))])
        for plan in body.plans(3):
            program = body.program(plan, k.PLAIN, packed=rng.random() < 0.5)
            ops.update(program._arrays[k.STEPS][:, k.OP].tolist())
    assert is_enough(), ops
