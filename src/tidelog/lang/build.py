# ruff: noqa: D102 -- the methods of Builder are named after the rules of grammar.lark
"""The parser's raw tree becomes syntax nodes.

Terms and formulas share one grammar. So this is where `edge(x, y)` becomes an atom in the body of a
rule, and a functor call in an expression. Constructs that Tidelog does not have are refused here,
by name.
"""

from __future__ import annotations

from typing import Any, TypeVar

from lark import Token, Transformer, Tree
from lark.tree import Meta

from tidelog.lang import syntax as s
from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.tokens import span_of
from tidelog.source import SourceText, Span

TESTS = frozenset({"match", "contains"})
_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "a": "\a", "b": "\b",
    "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip
_ORDER = "its values would depend on the order of evaluation: number the rows when you load them"
_T = TypeVar("_T")


_STRENGTH = {
    "LOR": 0, "LXOR": 1, "LAND": 2, "BOR": 3, "BXOR": 4, "BAND": 5, "SHIFT": 6,
    "PLUS": 7, "MINUS": 7, "STAR": 8, "SLASH": 8, "PERCENT": 8, "CARET": 9,
}  # fmt: skip
"""How strongly the operators bind; signs come between the last two."""


class RefusedConstruct(Exception):
    """A construct was refused and reported; the statement that contains it is skipped."""


class Builder(Transformer[Token, Any]):
    """Builds one statement; methods are named after the rules of grammar.lark."""

    def __init__(self, source: SourceText, diagnostics: Diagnostics) -> None:
        super().__init__()
        self._source = source
        self._diagnostics = diagnostics

    # Every method needs positions, so the call hook passes them instead of v_args.
    def _call_userfunc(self, tree: Tree[Any], new_children: list[Any] | None = None) -> Any:
        children = tree.children if new_children is None else new_children
        method = getattr(self, tree.data)
        return method(children, self._span(tree.meta))

    def _span(self, meta: Meta) -> Span:
        if meta.empty:
            return Span(self._source, 1, 1, 1, 1)
        return Span(self._source, meta.line, meta.column, meta.end_line, meta.end_column)

    def _token_span(self, token: Token) -> Span:
        return span_of(self._source, token)

    def _refuse(self, what: str, span: Span, hint: str | None = None) -> RefusedConstruct:
        self._diagnostics.error("not-supported", f"{what} not supported", span, hint)
        return RefusedConstruct()

    # --- rules ---

    def statement(self, children: list[s.Statement], span: Span) -> s.Statement:
        return children[0]

    def rule(self, children: list[Any], span: Span) -> s.RuleStatement | s.SubsumptionStatement:
        head, _if, body, plan = children
        match head:
            case s.Compared("<=", s.Call(), s.Call()):
                return self._subsumption(head, body, span)
        parts = head.parts if isinstance(head, s.Both) else (head,)
        return s.RuleStatement(
            tuple(self._head(part) for part in parts), body, plan or (), span=span
        )

    def _head(self, formula: s.Formula) -> s.Head:
        match formula:
            case s.AtomFormula():
                return formula
            case s.Compared("=", s.Lookup() as key, value):
                return s.FunctionalHead(key.relation, key.args, value, span=formula.span)
            case s.Not():
                message = "a negation cannot be the head of a rule"
                hint = "rules only say what holds: what no rule derives is absent"
            case _:
                message = "the head of a rule must be an atom"
                hint = "write `relation(arguments) :- conditions.`"
        self._diagnostics.error("bad-head", message, formula.span, hint)
        raise RefusedConstruct

    def _subsumption(
        self, head: s.Compared, body: s.Formula | None, span: Span
    ) -> s.SubsumptionStatement:
        """Build `worse <= better :- body.`."""
        worse, better = (self.condition([side], side.span) for side in (head.left, head.right))
        if not isinstance(worse, s.AtomFormula) or not isinstance(better, s.AtomFormula):
            message = "subsumption compares two rows of a relation"
        elif worse.relation != better.relation:
            message = f"`{worse.relation}` and `{better.relation}` are two relations"
        elif body is None:
            message = "subsumption needs a body: it says when the first row is left out"
        else:
            return s.SubsumptionStatement(worse, better, body, span=span)
        self._diagnostics.error(
            "bad-subsumption", message, head.span,
            "write `relation(worse) <= relation(better) :- conditions.`",
        )  # fmt: skip
        raise RefusedConstruct

    def disjunction(self, children: list[s.Formula], span: Span) -> s.Formula:
        return _joined(s.Either, children, span)

    def conjunction(self, children: list[s.Formula], span: Span) -> s.Formula:
        return _joined(s.Both, children, span)

    def negation(self, children: list[s.Formula], span: Span) -> s.Formula:
        return s.Not(children[0], span=span)

    def group(self, children: list[s.Formula], span: Span) -> s.Formula:
        return children[0]

    def comparison(self, children: list[Any], span: Span) -> s.Formula:
        left, op, right = children
        return s.Compared(str(op), left, right, span=span)

    def condition(self, children: list[s.Term], span: Span) -> s.Formula:
        term = children[0]
        match term:
            case s.Call(name, args) if name in TESTS:
                return s.Tested(name, args, span=span)
            case s.Call(name, args) if name[:1] in "_?" or name[:1].isalpha():
                return s.AtomFormula(name, args, span=span)
            case s.BoolLiteral(value):
                return s.Truth(value, span=span)
            case s.Variable(name):
                hint = f"a relation without columns is written `{name}()`"
            case s.Lookup(name):
                hint = f"compare its value: `{name}[..] = value`"
            case s.AggregateTerm(op):
                hint = f"compare its value: `n = {op} ..`"
            case _:
                hint = "a condition is an atom, a negated atom or a comparison"
        self._diagnostics.error("not-a-condition", "this is a value, not a condition", span, hint)
        raise RefusedConstruct

    def plan(self, children: list[Any], span: Span) -> tuple[s.PlanOrder, ...]:
        return tuple(children[1:])

    def plan_order(self, children: list[Any], span: Span) -> s.PlanOrder:
        version, *order = (int(token) for token in children if token is not None)
        return s.PlanOrder(version, tuple(order), span=span)

    # --- terms ---

    def variable(self, children: list[Token], span: Span) -> s.Term:
        return s.Variable(str(children[0]), span=span)

    def anonymous(self, children: list[Token], span: Span) -> s.Term:
        return s.Anonymous(span=span)

    def integer(self, children: list[Token], span: Span) -> s.Term:
        text = str(children[0])
        digits = text.removesuffix("u")
        base = {"0x": 16, "0b": 2}.get(digits[:2], 10)
        return s.IntLiteral(int(digits, base), text, text != digits, span=span)

    def real(self, children: list[Token], span: Span) -> s.Term:
        return s.FloatLiteral(str(children[0]), span=span)

    def string(self, children: list[Token], span: Span) -> s.Term:
        return s.StringLiteral(self._unescape(children[0]), span=span)

    def truth(self, children: list[Token], span: Span) -> s.Term:
        return s.BoolLiteral(children[0] == "true", span=span)

    def nil(self, children: list[Token], span: Span) -> s.Term:
        return s.NilLiteral(span=span)

    def expr(self, children: list[Any], span: Span) -> s.Term:
        """Build the tree of a chain of operands and operators, the strongest binding first."""
        chain = list(reversed(children))
        term = self._climb(chain, 0)
        assert not chain, "an expression ends with an operand"
        return term

    def _climb(self, chain: list[Any], least: int) -> s.Term:
        """Take an operand and the operators after it that bind at least as strongly as `least`."""
        left = self._operand(chain)
        while chain and _STRENGTH[chain[-1].type] >= least:
            operator = chain.pop()
            strength = _STRENGTH[operator.type]
            right = self._climb(chain, strength + 1)  # all group to the left; `^` is taken below
            left = s.Call(str(operator), (left, right), span=left.span.to(right.span))
        return left

    def _operand(self, chain: list[Any]) -> s.Term:
        """Take a term with the signs before it; they bind less strongly than a `^` after it."""
        item = chain.pop()
        if not isinstance(item, Token):
            term: s.Term = item
            if chain and isinstance(chain[-1], Token) and chain[-1].type == "CARET":
                chain.pop()
                exponent = self._operand(chain)
                term = s.Call("^", (term, exponent), span=term.span.to(exponent.span))
            return term
        operand = self._operand(chain)
        span = self._token_span(item).to(operand.span)
        if item == "-":
            # A minus before a literal belongs to it: -9223372036854775808 is a number.
            match operand:
                case s.IntLiteral(value, text, False) if not text.startswith("-"):
                    return s.IntLiteral(-value, f"-{text}", span=span)
                case s.FloatLiteral(text) if not text.startswith("-"):
                    return s.FloatLiteral(f"-{text}", span=span)
        return s.Call(str(item), (operand,), span=span)

    def arguments(self, children: list[s.Term], span: Span) -> tuple[s.Term, ...]:
        return tuple(children)

    def call(self, children: list[Any], span: Span) -> s.Term:
        name, args = str(children[0]), children[1] or ()
        if name == "as":
            return self._cast(args, span)
        if name == "autoinc":
            raise self._refuse("`autoinc()` is", span, _ORDER)
        return s.Call(name, args, span=span)

    def _cast(self, args: tuple[s.Term, ...], span: Span) -> s.Term:
        if len(args) == 2:
            match args[1]:
                case s.Variable(name):
                    return s.Cast(args[0], s.TypeName(name, span=args[1].span), span=span)
                case s.Call(name, (s.IntLiteral(p), s.IntLiteral(q))):
                    return s.Cast(args[0], s.TypeName(name, (p, q), span=args[1].span), span=span)
        self._diagnostics.error(
            "bad-cast", "`as` takes a term and a type", span, "write `as(x, T)`"
        )
        raise RefusedConstruct

    def lookup(self, children: list[Any], span: Span) -> s.Term:
        return s.Lookup(str(children[0]), children[1] or (), span=span)

    def record(self, children: list[Any], span: Span) -> s.Term:
        return s.RecordTerm(children[0] or (), span=span)

    def aggregate(self, children: list[Any], span: Span) -> s.Term:
        op, target, body = children
        return s.AggregateTerm(str(op), target, body, span=span)

    def aggregate_body(self, children: list[Any], span: Span) -> s.Formula:
        return self.condition(children, span) if isinstance(children[0], s.Call) else children[0]

    def branch(self, children: list[Any], span: Span) -> s.Term:
        return s.BranchTerm(str(children[1]), children[2] or (), span=span)

    def counter(self, children: list[Any], span: Span) -> s.Term:
        raise self._refuse("the counter `$` is", span, _ORDER)

    def user_functor(self, children: list[Any], span: Span) -> s.Term:
        return s.Call(f"@{children[1]}", children[2] or (), span=span)

    # --- declarations ---

    def relation_name(self, children: list[Token], span: Span) -> s.RelationName:
        return s.RelationName(str(children[0]), span=span)

    def relation_names(self, children: list[_T], span: Span) -> tuple[_T, ...]:
        return tuple(children)

    def attribute(self, children: list[Any], span: Span) -> s.Attribute:
        return s.Attribute(str(children[0]), children[1], span=span)

    def attributes(self, children: list[_T], span: Span) -> tuple[_T, ...]:
        return tuple(children)

    def qualifiers(
        self, children: list[Any], span: Span
    ) -> tuple[tuple[str, ...], tuple[s.ChoiceKey, ...]]:
        plain = tuple(str(child) for child in children if isinstance(child, Token))
        choices = (child for child in children if not isinstance(child, Token))
        return plain, tuple(key for choice in choices for key in choice)

    def choice(self, children: list[Any], span: Span) -> tuple[s.ChoiceKey, ...]:
        return tuple(children[1:])

    def choice_key(self, children: list[Token], span: Span) -> s.ChoiceKey:
        return s.ChoiceKey(tuple(map(str, children)), span=span)

    def declaration(self, children: list[Any], span: Span) -> s.RelationDeclaration:
        _decl, names, attributes, (qualifiers, choice) = children
        return s.RelationDeclaration(names, attributes or (), qualifiers, choice=choice, span=span)

    def functional_declaration(self, children: list[Any], span: Span) -> s.RelationDeclaration:
        _decl, name, attributes, value, (qualifiers, choice) = children
        return s.RelationDeclaration(
            (name,), attributes or (), qualifiers, value, choice, span=span
        )

    def type_name(self, children: list[Token], span: Span) -> s.TypeName:
        return s.TypeName(str(children[0]), span=span)

    def decimal_name(self, children: list[Token], span: Span) -> s.TypeName:
        numbers = tuple(int(token) for token in children[1:] if token is not None)
        return s.TypeName(str(children[0]), numbers, span=span)

    def set_name(self, children: list[Any], span: Span) -> s.TypeName:
        return s.TypeName(str(children[0]), element=children[1], span=span)

    def symbol_subtype(self, children: list[Token], span: Span) -> s.Subtype:
        return s.Subtype(str(children[1]), s.TypeName("symbol", span=span), True, span=span)

    def number_subtype(self, children: list[Token], span: Span) -> s.Subtype:
        return s.Subtype(str(children[1]), s.TypeName("number", span=span), True, span=span)

    def subtype(self, children: list[Any], span: Span) -> s.Subtype:
        return s.Subtype(str(children[1]), children[3], span=span)

    def alias(self, children: list[Any], span: Span) -> s.AliasOrUnion:
        members = tuple(c for c in children[3:] if isinstance(c, s.TypeName))
        return s.AliasOrUnion(str(children[1]), members, span=span)

    def record_type(self, children: list[Any], span: Span) -> s.RecordDeclaration:
        return s.RecordDeclaration(str(children[1]), children[3] or (), span=span)

    def adt_branch(self, children: list[Any], span: Span) -> s.Branch:
        return s.Branch(str(children[0]), children[1] or (), span=span)

    def algebraic_type(self, children: list[Any], span: Span) -> s.AlgebraicDeclaration:
        branches = tuple(c for c in children if isinstance(c, s.Branch))
        return s.AlgebraicDeclaration(str(children[1]), branches, span=span)

    def directive(self, children: list[Any], span: Span) -> s.DirectiveStatement:
        kind, names, *parameters = children
        given = tuple(p for p in parameters if p is not None)
        return s.DirectiveStatement(str(kind)[1:], names, given, span=span)

    def parameter(self, children: list[Any], span: Span) -> s.Parameter:
        value = children[2]
        quoted = value.type == "STRING"
        text = self._unescape(value) if quoted else str(value)
        return s.Parameter(str(children[0]), text, quoted, span=span)

    def parameter_value(self, children: list[Token], span: Span) -> Token:
        return children[0]

    def retain(self, children: list[Any], span: Span) -> s.RetainStatement:
        return s.RetainStatement(*children[1:], span=span)

    def column_name(self, children: list[Token], span: Span) -> s.ColumnName:
        return s.ColumnName(str(children[0]), span=span)

    def bound(self, children: list[Token], span: Span) -> s.RetainBound:
        (token,) = children
        quoted = token.type == "STRING"
        return s.RetainBound(self._unescape(token) if quoted else str(token), quoted, span=span)

    def pragma(self, children: list[Any], span: Span) -> s.PragmaStatement:
        return s.PragmaStatement(
            tuple(self._unescape(token) for token in children[1:] if token is not None), span=span
        )

    # --- components ---

    def component(self, children: list[Any], span: Span) -> s.ComponentDeclaration:
        own, *bases = (c for c in children if isinstance(c, s.ComponentType))
        return s.ComponentDeclaration(own.name, own.args, tuple(bases), span=span)

    def component_type(self, children: list[Token | None], span: Span) -> s.ComponentType:
        name, *rest = (token for token in children if token is not None)
        signs = [token for token in rest if token.type == "COMPARE"]
        if [str(sign) for sign in signs] not in ([], ["<", ">"]):
            self._diagnostics.error(
                "syntax", "the parameters of a component stand between `<` and `>`", span,
                f"write `{name}<T>`",
            )  # fmt: skip
            raise RefusedConstruct
        return s.ComponentType(
            str(name), tuple(str(token) for token in rest if token.type == "IDENT"), span=span
        )

    def init(self, children: list[Any], span: Span) -> s.InitStatement:
        return s.InitStatement(str(children[1]), children[3], span=span)

    def override(self, children: list[Any], span: Span) -> s.OverrideStatement:
        return s.OverrideStatement(children[1], span=span)

    def _unescape(self, token: Token) -> str:
        out: list[str] = []
        characters = iter(enumerate(str(token)[1:-1], start=1))
        first_bad = True  # one for each string: in "C:\\dir\\sub" there is one mistake, not two
        for i, character in characters:
            if character != "\\":
                out.append(character)
                continue
            _, escaped = next(characters)
            if escaped not in _ESCAPES and first_bad:
                first_bad = False
                start = self._token_span(token)
                column = start.column + i
                self._diagnostics.error(
                    "bad-escape", f"there is no escape `\\{escaped}`",
                    Span(self._source, start.line, column, start.line, column + 2),
                    "a backslash is written `\\\\`;"
                    ' the escapes are \\" \\\\ \\n \\t \\r \\a \\b \\f \\v',
                )  # fmt: skip
            out.append(_ESCAPES.get(escaped, escaped))
        return "".join(out)


def _joined(node: type[s.Both] | type[s.Either], parts: list[s.Formula], span: Span) -> s.Formula:
    """Return the parts as one node; nested nodes of the same kind are flattened."""
    if len(parts) == 1:
        return parts[0]
    flat: list[s.Formula] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, node) else (part,))
    return node(tuple(flat), span=span)
