"""Checks proofs, and what is missing, step by step.

A step of a proof is a program of its own: its rule, with the values of its variables as conditions,
and the rows of its premises as facts. The reference engine must derive exactly the row. Relations
that the rule negates or aggregates have all their rows.

Proofs are found with parts of the reference engine. So the kernel, which shares no code with it,
evaluates some steps of each rule, too. And the rows of each step are compared with the atoms of its
rule by substitution, which needs no engine at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.maintain.levels import levels_and_counts
from tidelog.engine.kernel import KernelEngine
from tidelog.logic import program as p
from tidelog.logic.stratify import dependencies
from tidelog.logic.variables import terms_of, typed_variables
from tidelog.proof.gaps import (
    BlockingRow,
    FailedComputation,
    FailedCondition,
    MissingRow,
    OtherAggregate,
    OtherHead,
    RowHeld,
    WhyNot,
)
from tidelog.proof.tree import Absence, AggregateTaken, ConditionHeld, Premise, Proof
from tidelog.proof.words import AnyValue
from tidelog.reference import evaluate
from tidelog.values.types import Row

HEAD = "%head"
KERNEL_STEPS = 2  # of each rule
Contents = Mapping[str, Iterable[Row]]


class ProofChecker:
    """Checks proofs in one state of one program."""

    def __init__(self, program: p.Program, given: Contents, engine: str) -> None:
        self._program, self._engine = program, engine
        self._given = {name: set(rows) for name, rows in given.items()}
        self._rows = evaluate(program, self._given)
        self._levels: dict[bool, Mapping[str, Mapping[Row, tuple[int, int]]]] = {}
        """By whether the rows of facts have the level 0, as given ones."""
        self._facts = {(fact.relation, fact.row) for fact in program.facts}
        self._by_kernel: Counter[int] = Counter()
        self._recursive = {n: s for s in program.strata if s.recursive for n in s.relations}

    # --- proofs ---

    def check(self, proof: Proof, relation: str, row: Row) -> None:
        """Assert that a proof proves a row."""
        assert (proof.relation, proof.row) == (relation, row)
        nodes = list(proof.nodes())
        keys = [(node.relation, repr(node.row)) for node in nodes]
        assert len(set(keys)) == len(keys), "a row is proved twice"
        _assert_no_circle(proof)
        for node in nodes:
            self._check_step(node)
        assert str(proof).startswith(proof.text)

    def _check_step(self, proof: Proof) -> None:
        assert proof.row in self._rows[proof.relation]
        if proof.origin == "given":
            assert proof.row in self._given[proof.relation]
            return
        if proof.origin == "fact":
            assert (proof.relation, proof.row) in self._facts
            return
        assert proof.rule in self._program.rules
        assert proof.rule.head.relation == proof.relation
        for step in proof.steps:
            if isinstance(step, Absence):
                assert not self._matching(step.relation, step.pattern), step
        _check_substitution(proof)
        facts: dict[str, set[Row]] = {}
        for child in proof.children:
            facts.setdefault(child.relation, set()).add(child.row)
            if child.relation in self._recursive and proof.relation in self._recursive:
                self._check_levels(proof, child)
        assert self.derived(proof.rule, proof.values, facts) == {proof.row}
        self._by_kernel[proof.rule.id] += 1
        if self._by_kernel[proof.rule.id] <= KERNEL_STEPS:
            made, known = self._step(proof.rule, proof.values, facts)
            assert KernelEngine(made, known, expects_updates=False).rows(HEAD) == {proof.row}

    def _check_levels(self, proof: Proof, child: Proof) -> None:
        if self._recursive[child.relation] is not self._recursive[proof.relation]:
            return
        # Where no levels are kept, they are found, and those of leaves are 0.
        relations = self._recursive[child.relation].relations
        views = [self._program.views.get(name) for name in relations]
        is_found = self._engine == "reference" or any(view and view.virtual for view in views)
        if is_found not in self._levels:
            program, given = self._program, self._given
            if is_found:
                program = replace(program, facts=())
                given = {name: set(rows) for name, rows in given.items()}
                for relation, row in self._facts:
                    given.setdefault(relation, set()).add(row)
            self._levels[is_found] = levels_and_counts(program, given)
        levels = self._levels[is_found]
        below = levels[child.relation][child.row][0]
        assert below < levels[proof.relation][proof.row][0], "the proof is not of least depth"

    def derived(self, rule: p.Rule, values: Mapping[str, Any], facts: Contents) -> set[Row]:
        """Return what a rule derives with these values from these rows alone."""
        made, known = self._step(rule, values, facts)
        return set(evaluate(made, known)[HEAD])

    def _step(
        self, rule: p.Rule, values: Mapping[str, Any], facts: Contents
    ) -> tuple[p.Program, dict[str, set[Row]]]:
        """Return a program with one rule for `HEAD`, and its rows."""
        negative = {need.relation for need in dependencies(rule.body) if need.how}
        known = {name: set(self._rows[name]) for name in negative} | {
            name: set(rows) for name, rows in facts.items() if name not in negative
        }
        types = dict(typed_variables((*rule.head.args, *_terms(rule.body))))
        equal = tuple(
            p.Compare(p.Comparison.EQ, p.Var(n, types[n]), p.Const(v, types[n]), rule.span)
            for n, v in values.items()
        )
        head = HEAD
        made = replace(rule, head=replace(rule.head, relation=head), body=(*rule.body, *equal))
        relations = {
            **self._program.relations,
            head: replace(self._program.relations[rule.head.relation], name=head, functional=False),
        }
        strata = tuple(
            p.Stratum(i, (name,), (made,) if name == head else (), False)
            for i, name in enumerate(relations)
        )
        tiny = replace(
            self._program, relations=relations, facts=(), rules=(made,), strata=strata, views={}
        )
        return tiny, known

    def _matching(self, relation: str, pattern: Sequence[Any]) -> list[Row]:
        return [row for row in self._rows[relation] if _matches(row, pattern)]

    # --- what is missing ---

    def check_missing(self, found: WhyNot, relation: str, row: Row) -> None:
        """Assert that what a row lacks is lacking, and that what holds does hold."""
        assert (found.relation, found.pattern) == (relation, row)
        assert not self._matching(relation, row) and found.proof is None
        own = [rule for rule in self._program.rules if rule.head.relation == relation]
        assert [gap.rule for gap in found.rules] == own
        for gap in found.rules:
            for step in gap.held:
                if isinstance(step, RowHeld):
                    assert step.row in self._rows[step.relation]
                elif isinstance(step, Absence):
                    assert not self._matching(step.relation, step.pattern)
            match gap.gap:
                case MissingRow(name, pattern, _, deeper):
                    assert not self._matching(name, pattern)
                    if deeper is not None:
                        self.check_missing(deeper, name, pattern)
                case BlockingRow(name, met):
                    assert met in self._rows[name]
                case FailedCondition() | OtherAggregate() | OtherHead() | FailedComputation():
                    pass
            # With these values, no rows at all make the rule derive the row.
            if not isinstance(gap.gap, OtherHead | FailedComputation):
                derived = self.derived(gap.rule, gap.values, self._rows)
                assert not any(_matches(made, row) for made in derived)
        assert str(found).startswith(found.text)


def _check_substitution(proof: Proof) -> None:
    """Assert that the atoms of a rule, with the values of its variables, are the rows of a step."""
    assert proof.rule is not None
    values = dict(proof.values)
    assert _is_instance(proof.rule.head.args, proof.row, values), proof.text
    for literal, step in zip(proof.rule.body, proof.steps, strict=True):
        match literal, step:
            case p.Atom(relation, args, negated=False), Premise(child):
                assert child.relation == relation
                assert _is_instance(args, child.row, values), child.text
            case p.Atom(relation, args, negated=True), Absence(name, pattern):
                assert name == relation
                for arg, part in zip(args, pattern, strict=True):
                    if isinstance(arg, p.Var) and arg.name in values:
                        assert part == values[arg.name]
            case p.Compare(), ConditionHeld():
                assert _holds(literal, values) is not False, step.with_values
            case p.Reduce(op="count", target=None), AggregateTaken():
                assert step.value == step.size
            case p.Reduce(), AggregateTaken():
                pass
            case p.Test() | p.Generate(), ConditionHeld():
                pass
            case _:
                raise AssertionError(f"{step} does not belong to {literal}")


def _is_instance(args: Sequence[p.Term], row: Row, values: Mapping[str, Any]) -> bool:
    """Return whether arguments have these values; what is computed may have any."""
    for arg, value in zip(args, row, strict=True):
        match arg:
            case p.Var(name) if name in values and not _is_same(values[name], value):
                return False
            case p.Const(known) if not _is_same(known, value):
                return False
            case p.MakeRecord(parts) if value is None or not _is_instance(parts, value, values):
                return False
    return True


def _is_same(one: Any, other: Any) -> bool:
    return bool(one == other) or repr(one) == repr(other)  # NaN is not equal to itself


def _holds(condition: p.Compare, values: Mapping[str, Any]) -> bool | None:
    """Return whether two plain numbers compare as they should; None for anything else."""
    sides = []
    for side in (condition.left, condition.right):
        match side:
            case p.Var(name) if type(values.get(name)) is int:
                sides.append(values[name])
            case p.Const(value) if type(value) is int:
                sides.append(value)
            case _:
                return None
    left, right = sides
    return {
        "=": left == right, "!=": left != right, "<": left < right, "<=": left <= right,
        ">": left > right, ">=": left >= right,
    }[condition.op.value]  # fmt: skip


def _terms(body: Iterable[p.Literal]) -> list[p.Term]:
    return [term for literal in body for term in terms_of(literal)]


def _matches(value: Any, pattern: Any, same: dict[str, Any] | None = None) -> bool:
    same = {} if same is None else same
    if isinstance(pattern, AnyValue):
        return not pattern.name or same.setdefault(pattern.name, value) == value
    if isinstance(value, tuple) and isinstance(pattern, tuple):
        return len(value) == len(pattern) and all(
            _matches(v, part, same) for v, part in zip(value, pattern, strict=True)
        )
    return value is pattern or value == pattern


def _assert_no_circle(root: Proof) -> None:
    done: set[int] = set()
    path: list[tuple[Proof, bool]] = [(root, False)]
    under_way: set[int] = set()
    while path:
        proof, left = path.pop()
        if left:
            under_way.discard(id(proof))
            done.add(id(proof))
            continue
        assert id(proof) not in under_way, f"{proof.text} is below itself"
        if id(proof) in done:
            continue
        under_way.add(id(proof))
        path.append((proof, True))
        path += ((child, False) for child in proof.children)
