"""A checked program as an answer-set program, evaluated by clingo.

The translation reads the normal form of `logic/program.py` and nothing of the reference engine. On
stratified programs the two languages agree but for these points:

- clingo's integers have 32 bits: cases must stay small;
- an aggregate is taken over the tuples before the colon: the target, then the local variables, so
  that equal values of different assignments count each;
- #min and #max of nothing are #sup and #inf in clingo; in Tidelog the literal does not hold;
- `range` excludes its end, may have a step and go down; clingo's `a..b` goes up, ends included.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import clingo

from tidelog.logic import program as p

_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "\\"}
_COMPARISONS = {
    p.Comparison.EQ: "=", p.Comparison.NE: "!=", p.Comparison.LT: "<",
    p.Comparison.LE: "<=", p.Comparison.GT: ">", p.Comparison.GE: ">=",
}  # fmt: skip


def evaluate(
    program: p.Program, facts: Mapping[str, Iterable[p.Row]]
) -> dict[str, frozenset[p.Row]]:
    """Return the rows of every relation, as clingo computes them."""
    complaints: list[str] = []

    def log(code: clingo.MessageCode, message: str) -> None:
        if code is not clingo.MessageCode.AtomUndefined:
            complaints.append(message)

    control = clingo.Control(logger=log)
    control.add("base", [], translate(program, facts))
    control.ground([("base", [])])
    found: dict[str, set[p.Row]] = {name: set() for name in program.relations}
    models = 0
    with control.solve(yield_=True) as handle:
        for model in handle:
            models += 1
            for atom in model.symbols(atoms=True):
                if not atom.name.startswith("r_"):
                    continue  # a candidate, and which of them are better
                found[atom.name.removeprefix("r_")].add(tuple(map(_value, atom.arguments)))
    assert models == 1, f"{models} models, of a stratified program there is one"
    assert not complaints, complaints
    return {name: frozenset(rows) for name, rows in found.items()}


def _value(symbol: clingo.Symbol) -> Any:
    return symbol.number if symbol.type is clingo.SymbolType.Number else symbol.string


def translate(program: p.Program, facts: Mapping[str, Iterable[p.Row]]) -> str:
    """Return the program and its facts in the syntax of clingo."""
    lines = []
    rows = [(fact.relation, fact.row) for fact in program.facts]
    rows += [(name, row) for name, given in facts.items() for row in given]
    for name, row in rows:
        shown = _candidates(name, program)
        lines.append(f"{_atom(shown, [_constant(value) for value in row])}.")
    for rule in program.rules:
        variables = _Variables()
        name = _candidates(rule.head.relation, program)
        head = _atom(name, [variables.term(arg) for arg in rule.head.args])
        for body in variables.bodies(rule.body):
            lines.append(f"{head} :- {', '.join(body)}." if body else f"{head}.")
    for name, kept in program.pruned.items():
        lines += _pruning(name, kept, program)
    return "\n".join(lines)


def _candidates(name: str, program: p.Program) -> str:
    return f"{name}@" if name in program.pruned else name


def _pruning(name: str, kept: p.ChoiceDomain | p.Subsumption, program: p.Program) -> Iterator[str]:
    """Yield the rules of the rows that are kept; without recursion, and by one key."""
    columns = [f"A{i}" for i in range(program.relations[name].arity)]
    others = [f"B{i}" for i in range(len(columns))]
    mine, other = (f"all_{name}({','.join(row)})" for row in (columns, others))
    better, worse = f"better_{name}({','.join((*columns, *others))})", f"worse_{name}"
    back = f"better_{name}({','.join((*others, *columns))})"
    if isinstance(kept, p.ChoiceDomain):
        (key,) = kept.keys
        equal = [f"A{i} = B{i}" for i in key]
        differ = f"({','.join(columns)},) != ({','.join(others)},)"
        yield f"{better} :- {', '.join((mine, other, *equal, differ))}."
    else:
        for rule in kept.rules:
            variables = _Variables()
            rows = [variables.term(arg) for atom in rule.body[:2] for arg in atom.args]
            for body in variables.bodies(rule.body[2:]):
                atoms = [
                    f"all_{name}({','.join(part)})"
                    for part in (rows[: len(columns)], rows[len(columns) :])
                ]
                differ = (
                    f"({','.join(rows[: len(columns)])},) != ({','.join(rows[len(columns) :])},)"
                )
                yield f"better_{name}({','.join(rows)}) :- {', '.join((*atoms, *body, differ))}."
    shown = ",".join(columns)
    yield f"{worse}({shown}) :- {better}, not {back}."
    yield f"{worse}({shown}) :- {better}, ({','.join(others)},) < ({shown},)."
    yield f"r_{name}({shown}) :- {mine}, not {worse}({shown})."


def _atom(relation: str, args: list[str]) -> str:
    if relation.endswith("@"):
        return f"all_{relation[:-1]}({','.join(args)})"
    return f"r_{relation}({','.join(args)})" if args else f"r_{relation}"


def _constant(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    assert isinstance(value, int) and abs(value) < 2**31, value
    return f"({value})" if value < 0 else str(value)


class _Variables:
    """Translates one rule; its variables are renamed, since clingo wants capitals."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._fresh = itertools.count()

    def term(self, term: p.Term) -> str:
        match term:
            case p.Var(name):
                return self._names.setdefault(name, f"V{next(self._fresh)}")
            case p.Const(value):
                return _constant(value)
            case p.Wildcard():
                return "_"
            case p.Apply("neg", (operand,)):
                return f"(-{self.term(operand)})"
            case p.Apply(op, (left, right)):
                return f"({self.term(left)} {_OPERATORS[op]} {self.term(right)})"
        raise NotImplementedError(term)

    def bodies(self, body: tuple[p.Literal, ...]) -> Iterator[list[str]]:
        """Yield the conjunctions that together say what `body` says."""
        for alternative in itertools.product(*(self._literal(literal) for literal in body)):
            yield [part for conjunction in alternative for part in conjunction]

    def _literal(self, literal: p.Literal) -> list[list[str]]:
        match literal:
            case p.Atom(relation, args, negated=negated):
                atom = _atom(relation, [self.term(arg) for arg in args])
                return [[f"not {atom}" if negated else atom]]
            case p.Compare(op, left, right):
                return [[f"{self.term(left)} {_COMPARISONS[op]} {self.term(right)}"]]
            case p.Generate(target, args):
                return self._range(self.term(target), args)
            case p.Reduce():
                return [self._aggregate(literal)]
        raise NotImplementedError(literal)

    def _range(self, target: str, args: tuple[p.Term, ...]) -> list[list[str]]:
        start, stop = self.term(args[0]), self.term(args[1])
        up, down = f"{target} = {start}..{stop}-1", f"{target} = {stop}+1..{start}"
        if len(args) == 2:
            return [[up], [down]]  # one of the two is empty
        assert isinstance(args[2], p.Const)
        step = args[2].value
        return [[up if step > 0 else down, f"({target} - {start}) \\ {abs(step)} = 0"]]

    def _aggregate(self, literal: p.Reduce) -> list[str]:
        result = self.term(literal.result)
        # Another aggregate may use the same names for variables of its own.
        for i, name in enumerate(literal.local):
            self._names[name] = f"L{i}"
        target = [] if literal.target is None else [self.term(literal.target)]
        parts = [*target, "0", *(self._names[name] for name in literal.local)]
        elements = [f"{','.join(parts)} : {', '.join(body)}" for body in self.bodies(literal.body)]
        for name in literal.local:
            del self._names[name]
        out = [f"{result} = #{literal.op} {{ {'; '.join(elements)} }}"]
        if literal.op in ("min", "max"):
            out.append(f"{result} != #{'sup' if literal.op == 'min' else 'inf'}")
        return out
