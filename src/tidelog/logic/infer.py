"""A clause gets its types and becomes a rule.

Every term gets a cell (logic/cells.py). Atoms, comparisons and functors merge cells. What cannot be
decided at once (is `t - u` a timestamp or a number of microseconds?) is deferred until its
neighbours are known. Literals take the type of their place: `"2024-01-31"` is a date where a date
is expected.

Declared types are checked in addition: a variable that comes from a `City` column and a `Town`
column cannot hold anything, and a `symbol` may not flow into a `City` column
(logic/program_types.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.printer import format_term
from tidelog.logic import program as p
from tidelog.logic.cells import Cell, TypeClash, with_article
from tidelog.logic.clashes import (
    LITERALS,
    STRING_KINDS,
    TEMPORAL_SUM,
    Draft,
    check_nil,
    hint_between,
    hint_for,
    in_words,
    is_text,
    mismatch,
    needs_one_type,
    unknown_functor,
    wrong_arity,
)
from tidelog.logic.declared import DeclaredUses
from tidelog.logic.functors import (
    CALLS,
    INFIX,
    MICROSECONDS,
    NUMERIC,
    PREFIX,
    TEMPORAL,
    TEXT,
    USAGE,
    Fixed,
    Uniform,
)
from tidelog.logic.normalise import (
    AggregateLiteral,
    AtomLiteral,
    Clause,
    CompareLiteral,
    PlainLiteral,
    RangeLiteral,
    TestLiteral,
)
from tidelog.logic.patterns import check_pattern
from tidelog.logic.program_types import ProgramTypes
from tidelog.logic.scopes import Scope, scope_of_body, scope_of_clause
from tidelog.source import Span
from tidelog.values.algebra import UserAggregate
from tidelog.values.functions import UserFunction
from tidelog.values.text import parse_value
from tidelog.values.types import (
    BOOL,
    FLOAT,
    NUMBER,
    SYMBOL,
    UNSIGNED,
    Kind,
    Type,
    record_type,
    set_type,
)

_INT_KINDS = NUMERIC
_REAL_KINDS = frozenset({Kind.FLOAT, Kind.DECIMAL})


class Inference:
    """Types one clause."""

    def __init__(
        self,
        clause: Clause,
        relations: Mapping[str, p.Relation],
        types: ProgramTypes,
        aggregates: Mapping[str, UserAggregate],
        functions: Mapping[str, UserFunction],
        diagnostics: Diagnostics,
    ) -> None:
        self._clause = clause
        self._functions = functions
        self._aggregates = aggregates
        self._relations = relations
        self._types = types
        self._diagnostics = diagnostics
        self._deferred: list[Callable[[bool], bool]] = []
        self._declared = DeclaredUses(types, diagnostics)

    def run(self, rule_id: int) -> p.Rule | None:
        """Return the typed rule, or None when something was reported."""
        before = len(self._diagnostics)
        clause = self._clause
        scope = scope_of_clause(clause)
        body = [self._literal(literal, scope) for literal in clause.body]
        head = self._head(clause.head, scope)
        if len(self._diagnostics) > before:
            return None
        self._solve()
        if len(self._diagnostics) > before:
            return None
        rule = p.Rule(rule_id, head(), tuple(make() for make in body), clause.text, clause.span)
        self._declared.check()
        return rule if len(self._diagnostics) == before else None

    def _error(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self._diagnostics.error(code, message, span, hint)

    # --- literals ---

    def _head(self, atom: s.AtomFormula, scope: Scope) -> Callable[[], p.Atom]:
        relation = self._relations[atom.relation]
        drafts = self._arguments(atom, relation, scope, is_sink=True, is_source=False)
        return lambda: p.Atom(atom.relation, tuple(d.make() for d in drafts), atom.span)

    def _literal(self, literal: PlainLiteral, scope: Scope) -> Callable[[], p.Literal]:
        match literal:
            case AtomLiteral(atom, negated):
                relation = self._relations[atom.relation]
                args = self._arguments(atom, relation, scope, is_sink=False, is_source=not negated)
                return lambda: p.Atom(
                    atom.relation, tuple(d.make() for d in args), atom.span, negated
                )
            case CompareLiteral(op, left, right, span):
                a, b = self._term(left, scope), self._term(right, scope)
                self._same(
                    a, b, span,
                    lambda: f"{a.shown} is {a.cell.describe()}, but {b.shown} is"
                    f" {b.cell.describe()}: they cannot be compared",
                )  # fmt: skip
                return lambda: p.Compare(p.Comparison(op), a.make(), b.make(), span)
            case TestLiteral(name, args, negated, span):
                drafts = [self._term(arg, scope) for arg in args]
                if self._check_arity(name, drafts, 2, 2, span) and name == "match":
                    check_pattern(args[0], self._diagnostics)
                for draft in drafts:
                    self._restrict(draft, TEXT, f"`{name}`")
                return lambda: p.Test(name, tuple(d.make() for d in drafts), span, negated)
            case RangeLiteral(result, args, span):
                return self._range(result, args, span, scope)
            case AggregateLiteral():
                return self._aggregate(literal, scope)

    def _arguments(
        self,
        atom: s.AtomFormula,
        relation: p.Relation,
        scope: Scope,
        *,
        is_sink: bool,
        is_source: bool,
    ) -> list[Draft]:
        drafts = []
        for arg, column in zip(atom.args, relation.columns, strict=True):
            draft = self._term(arg, scope)
            drafts.append(draft)
            place = f"column `{column.name}` of `{relation.name}`"
            message = mismatch(place, column.type, draft)
            self._give(draft, column.type, message, origin=place)
            self._declared.note(arg, column, scope, is_sink=is_sink, is_source=is_source)
        return drafts

    def _range(
        self, result: s.Term, args: tuple[s.Term, ...], span: Span, scope: Scope
    ) -> Callable[[], p.Literal]:
        if len(args) not in (2, 3):
            self._error(
                "wrong-arity", f"`range` takes 2 or 3 arguments, not {len(args)}", span,
                f"it is written {USAGE['range']}",
            )  # fmt: skip
        target = self._term(result, scope)
        drafts = [self._term(arg, scope) for arg in args]
        for draft in drafts:
            self._restrict(draft, NUMERIC - {Kind.DECIMAL}, "`range`")
            self._same(
                target, draft, span,
                needs_one_type("range", target, draft),
            )  # fmt: skip
        return lambda: p.Generate(target.make(), tuple(d.make() for d in drafts), span)

    def _aggregate(self, literal: AggregateLiteral, scope: Scope) -> Callable[[], p.Literal]:
        op, span = literal.op, literal.span
        inner = scope_of_body(literal, scope)
        result = self._term(literal.result, scope)
        body = [self._literal(part, inner) for part in literal.body]
        target = self._term(literal.target, inner) if literal.target is not None else None
        if target is None and op != "count":
            self._error("missing-target", f"`{op}` needs something to aggregate",
            span.first(len(op)),
                        f"write `{op} x : {{ .. }}`")  # fmt: skip
        elif target is not None:
            self._aggregate_types(op, target, result, span)
        if op == "count":
            self._give_result(result, NUMBER, op)
        registered = self._aggregates.get(op)
        if registered is not None and op in self._relations:
            message = f"`{op}` is a relation, and an aggregate that is registered from Python"
            hint = "give one of them another name"
            self._error("duplicate-relation", message, span.first(len(op)), hint)

        def make() -> p.Literal:
            return p.Reduce(
                result.make(), op, target.make() if target is not None else None,
                tuple(part() for part in body), inner.shared, inner.own, span, registered,
            )  # fmt: skip

        return make

    def _aggregate_types(self, op: str, target: Draft, result: Draft, span: Span) -> None:
        registered = self._aggregates.get(op)
        if registered is not None:
            self._give(
                target, registered.takes,
                lambda: f"`{op}` takes {with_article(f'`{registered.takes}`')},"
                f" but {target.shown} is {target.cell.describe()}",
            )  # fmt: skip
            self._give_result(result, registered.gives, op)
        match op:
            case "sum" | "mean" | "total":
                self._restrict(target, NUMERIC, f"`{op}`")
            case "concat":
                self._restrict(target, TEXT, f"`{op}`")
        match op:
            case "sum" | "min" | "max" | "concat":
                self._same(
                    result, target, span,
                    lambda: f"`{op}` gives {target.cell.describe()},"
                    f" but {result.shown} is {result.cell.describe()}",
                )  # fmt: skip
            case "mean" | "total":
                self._give_result(result, FLOAT, op)
            case "setof":
                self._deferred.append(lambda force: self._set_types(target, result, force))

    def _set_types(self, target: Draft, result: Draft, force: bool) -> bool:
        known = target.cell.settle() if force else target.cell.type
        if known is None:
            return force
        self._give_result(result, set_type(known), "setof")
        return True

    def _give_result(self, result: Draft, type_: Type, op: str) -> None:
        self._give(
            result, type_,
            lambda: f"`{op}` gives {with_article(f'`{type_}`')},"
            f" but {result.shown} is {result.cell.describe()}",
            origin=f"the result of `{op}`",
        )  # fmt: skip

    # --- terms ---

    def _term(self, term: s.Term, scope: Scope) -> Draft:
        match term:
            case s.Variable(name):
                owner = scope.owner(name)
                cell = owner.cells.setdefault(name, Cell())
                return Draft(cell, lambda: p.Var(name, self._settled(cell)), term)
            case s.Anonymous():
                cell = Cell()
                return Draft(cell, lambda: p.Wildcard(self._settled(cell)), term)
            case s.IntLiteral(value, _, unsigned):
                cell = Cell(UNSIGNED) if unsigned else Cell(kinds=_INT_KINDS, default=NUMBER)
                return self._constant(cell, term, str(value))
            case s.FloatLiteral(text):
                return self._constant(Cell(kinds=_REAL_KINDS, default=FLOAT), term, text)
            case s.StringLiteral(value):
                return self._constant(Cell(kinds=STRING_KINDS, default=SYMBOL), term, value)
            case s.BoolLiteral(value):
                return Draft(Cell(BOOL), lambda: p.Const(value, BOOL), term)
            case s.NilLiteral():
                cell = Cell(kinds=frozenset({Kind.RECORD}))
                return Draft(cell, lambda: p.Const(None, self._record_type(cell, term)), term)
            case s.RecordTerm(args):
                return self._record(term, args, scope)
            case s.Cast(inner, type_name):
                return self._cast(term, inner, type_name, scope)
            case s.Call(name, args):
                return self._call(term, name, [self._term(arg, scope) for arg in args])
            case _:
                raise AssertionError(f"normalisation left {term!r}")

    def _settled(self, cell: Cell) -> Type:
        # Whatever binds a variable also gives it a type. One without a type is unbound, and
        # logic/safety.py reports it: any type will do.
        return cell.settle() or SYMBOL

    def _record_type(self, cell: Cell, term: s.Term) -> Type:
        type_ = cell.settle()
        if type_ is not None:
            check_nil(term, type_, self._types.records, self._diagnostics)
            return type_
        if not cell.spoiled:
            shown = format_term(term)
            self._error(
                "unknown-record", f"the record type of `{shown}` is unknown", term.span,
                f"use it in an atom, or name the type: `as({shown}, Type)`",
            )  # fmt: skip
            cell.spoil()
        return SYMBOL

    def _constant(self, cell: Cell, term: s.Term, text: str) -> Draft:
        def make() -> p.Term:
            type_ = self._settled(cell)
            value: Any = None
            if type_.kind is Kind.SYMBOL:
                value = text
            else:
                try:
                    value = parse_value(text, type_, self._types.records)
                except ValueError as error:
                    self._error("bad-literal", str(error), term.span, LITERALS.get(type_.kind))
            return p.Const(value, type_)

        return Draft(cell, make, term)

    def _record(self, term: s.RecordTerm, args: tuple[s.Term, ...], scope: Scope) -> Draft:
        drafts = [self._term(arg, scope) for arg in args]
        cell = Cell(record_type(term.type)) if term.type else Cell(kinds=frozenset({Kind.RECORD}))

        def resolve(force: bool) -> bool:
            type_ = cell.type
            if type_ is None:
                return force
            fields = self._types.records[type_.record]
            if len(fields) != len(drafts):
                self._error(
                    "wrong-arity",
                    f"record type `{type_}` has {len(fields)}"
                    f" field{'s' * (len(fields) != 1)}, not {len(drafts)}",
                    term.span,
                    f"its fields are [{', '.join(f'{f.name}: {f.declared}' for f in fields)}]",
                )
                return True
            for draft, part in zip(drafts, fields, strict=True):
                place = f"field `{part.name}` of `{type_}`"
                self._give(draft, part.type, mismatch(place, part.type, draft), origin=place)
            return True

        self._deferred.append(resolve)
        return Draft(
            cell,
            lambda: p.MakeRecord(tuple(d.make() for d in drafts), self._record_type(cell, term)),
            term,
        )

    def _cast(self, term: s.Cast, inner: s.Term, type_name: s.TypeName, scope: Scope) -> Draft:
        draft = self._term(inner, scope)
        used = self._types.use(type_name)
        if used is not None:
            self._give(
                draft, used.type,
                lambda: f"`as` cannot turn {draft.cell.describe()} into"
                f" {with_article(f'`{used.type}`')}",
            )  # fmt: skip
        return Draft(draft.cell, draft.make, term)

    def _call(self, term: s.Call, name: str, args: list[Draft]) -> Draft:
        if name in PREFIX and len(args) == 1:
            return self._uniform(term, name, PREFIX[name], args)
        if name in ("+", "-"):
            return self._sum(term, name, args)
        if name in INFIX:
            return self._uniform(term, name, INFIX[name], args)
        if name in MICROSECONDS:
            return self._duration(term, name, args)
        signature = CALLS.get(name)
        match signature:
            case Uniform():
                return self._uniform(term, name, signature, args)
            case Fixed():
                return self._fixed(term, name, signature, args)
        function = self._functions.get(name.removeprefix("@"))
        if function is not None:
            return self._function(term, function, args)
        hint = unknown_functor(name, self._functions, self._relations, self._aggregates)
        where = term.span.first(len(name))
        self._error("unknown-functor", f"there is no functor `{name}`", where, hint)
        return Draft(Cell(), lambda: p.Const(None, SYMBOL), term)

    def _function(self, term: s.Call, function: UserFunction, args: list[Draft]) -> Draft:
        count = len(function.takes)
        if self._check_arity(function, args, count, count, term.span):
            for i, (arg, type_) in enumerate(zip(args, function.takes, strict=True), start=1):
                place = f"argument {i} of `{function}`"
                self._give(arg, type_, mismatch(place, type_, arg), origin=place)
        return Draft(
            Cell(function.gives, origin=f"the result of `{function}`"),
            lambda: p.Apply(function, tuple(a.make() for a in args), function.gives, term.span),
            term,
        )

    def _check_arity(
        self, name: str, args: list[Draft], least: int, most: int | None, span: Span
    ) -> bool:
        if len(args) >= least and (most is None or len(args) <= most):
            return True
        self._error("wrong-arity", *wrong_arity(name, len(args), least, most, span))
        return False

    def _uniform(self, term: s.Call, name: str, signature: Uniform, args: list[Draft]) -> Draft:
        cell = Cell(kinds=None if signature.kinds == frozenset(Kind) else signature.kinds)
        result = Draft(
            cell,
            lambda: p.Apply(
                signature.op, tuple(a.make() for a in args), self._settled(cell), term.span
            ),
            term,
        )
        if self._check_arity(name, args, signature.least, signature.most, term.span):
            self._merge_uniform(name, signature, args, result)
        return result

    def _merge_uniform(
        self, name: str, signature: Uniform, args: list[Draft], result: Draft
    ) -> None:
        for arg in args:
            if signature.kinds != frozenset(Kind):
                self._restrict(arg, signature.kinds, f"`{name}`")
            self._same(
                result, arg, result.node.span,
                needs_one_type(name, args[0], arg),
                against=args[0],
            )  # fmt: skip

    def _sum(self, term: s.Call, name: str, args: list[Draft]) -> Draft:
        """`+` and `-` work on numbers, and move dates by days and timestamps by microseconds.

        `+` also joins symbols, as `cat` does.
        """
        left, right = args
        cell = Cell(kinds=NUMERIC | TEMPORAL | (TEXT if name == "+" else frozenset()))

        def make() -> p.Term:
            type_ = self._settled(cell)
            op = "cat" if type_ == SYMBOL else INFIX[name].op
            return p.Apply(op, (left.make(), right.make()), type_, term.span)

        result = Draft(cell, make, term)

        def resolve(force: bool) -> bool:
            a, b, r = left.cell.type, right.cell.type, cell.type
            if a is not None and a.kind in TEMPORAL:
                if name == "-" and (b == a or is_text(right) or (b is None and r == NUMBER)):
                    self._same(left, right, term.span, lambda: "")
                    self._give(result, NUMBER, self._sum_message(term, left, right), TEMPORAL_SUM)
                    return True
                if (
                    name == "-"
                    and b is None
                    and r is None
                    and not force
                    and right.cell.kinds is None
                ):
                    return False
                self._give(right, NUMBER, self._sum_message(term, left, right), TEMPORAL_SUM)
                self._give(result, a, self._sum_message(term, left, right), TEMPORAL_SUM)
                return True
            if b is not None and b.kind in TEMPORAL:
                if name == "+":
                    self._give(left, NUMBER, self._sum_message(term, left, right), TEMPORAL_SUM)
                    self._give(result, b, self._sum_message(term, left, right), TEMPORAL_SUM)
                else:
                    self._give(left, b, self._sum_message(term, left, right), TEMPORAL_SUM)
                    self._give(result, NUMBER, self._sum_message(term, left, right), TEMPORAL_SUM)
                return True
            if r is not None and r.kind in TEMPORAL:
                if not force:
                    return False
                self._give(left, r, self._sum_message(term, left, right), TEMPORAL_SUM)
                self._give(right, NUMBER, self._sum_message(term, left, right), TEMPORAL_SUM)
                return True
            joins = name == "+" and r in (None, SYMBOL)
            if joins and (SYMBOL in (a, b, r) or (force and is_text(left, right))):
                for draft in (left, right, result):
                    self._give(draft, SYMBOL, self._sum_message(term, left, right))
                return True
            if joins and not force and is_text(left, right):
                return False  # the literal may still turn out to be a date
            known = [c.kinds for c in (left.cell, right.cell) if c.kinds is not None]
            if force or len(known) == 2 or (known and r is not None and name == "+"):
                self._merge_uniform(name, INFIX[name], args, result)
                return True
            return False

        self._deferred.append(resolve)
        return result

    def _sum_message(self, term: s.Call, left: Draft, right: Draft) -> Callable[[], str]:
        return lambda: (
            f"`{term.name}` cannot combine {left.cell.describe()} with {right.cell.describe()}"
        )

    def _duration(self, term: s.Call, name: str, args: list[Draft]) -> Draft:
        if self._check_arity(name, args, 1, 1, term.span):
            self._give(
                args[0], NUMBER,
                lambda: f"`{name}` takes a `number`, but {args[0].shown} is"
                f" {args[0].cell.describe()}",
            )  # fmt: skip
        factor = p.Const(MICROSECONDS[name], NUMBER)
        return Draft(
            Cell(NUMBER),
            lambda: p.Apply("mul", (args[0].make(), factor), NUMBER, term.span),
            term,
        )

    def _fixed(self, term: s.Call, name: str, signature: Fixed, args: list[Draft]) -> Draft:
        count = len(signature.arguments)
        most = None if signature.variadic else count
        cell = Cell(signature.result) if signature.result else Cell(kinds=frozenset({Kind.DECIMAL}))
        if self._check_arity(name, args, count, most, term.span):
            for i, arg in enumerate(args):
                kinds = signature.arguments[min(i, count - 1)]
                if kinds != frozenset(Kind):
                    self._restrict(arg, kinds, f"`{name}`")

        def make() -> p.Term:
            type_ = cell.type
            if type_ is None:
                type_ = FLOAT
                if not cell.spoiled:
                    self._error(
                        "unknown-decimal", "the number of digits of this decimal is unknown",
                        term.span, f"name the type: `as({format_term(term)}, decimal(10,2))`",
                    )  # fmt: skip
                    cell.spoil()
            return p.Apply(signature.op, tuple(a.make() for a in args), type_, term.span)

        return Draft(cell, make, term)

    # --- constraints ---

    def _solve(self) -> None:
        """Run the deferred decisions until all of them are made."""
        while self._deferred:
            pending, self._deferred = self._deferred, []
            waiting = [resolve for resolve in pending if not resolve(False)]
            if len(waiting) == len(pending):
                waiting[0](True)  # no progress: take the default for one, and continue
                waiting = waiting[1:]
            self._deferred = waiting + self._deferred

    def _same(
        self,
        a: Draft,
        b: Draft,
        span: Span,
        message: Callable[[], str],
        against: Draft | None = None,
    ) -> None:
        try:
            a.cell.merge(b.cell)
        except TypeClash:
            self._error("type-mismatch", message(), span, hint_between(against or a, b))
            a.cell.spoil()
            b.cell.spoil()

    def _give(
        self,
        draft: Draft,
        type_: Type,
        message: Callable[[], str],
        hint: str | None = None,
        origin: str = "",
    ) -> None:
        try:
            draft.cell.set(type_, origin)
        except TypeClash:
            self._error(
                "type-mismatch", message(), draft.node.span, hint or hint_for(draft, type_.kind)
            )
            draft.cell.spoil()

    def _restrict(self, draft: Draft, kinds: frozenset[Kind], who: str) -> None:
        try:
            draft.cell.restrict(kinds)
        except TypeClash:
            self._error(
                "type-mismatch",
                f"{who} takes {in_words(kinds)}, but {draft.shown} is {draft.cell.describe()}",
                draft.node.span,
                hint_for(draft, Kind.NUMBER if Kind.NUMBER in kinds else min(kinds, key=str)),
            )
            draft.cell.spoil()
