"""What a syntax error says.

The parser only knows that a token did not fit. That place is compared here with the mistakes that
people make, in the order of `_MISTAKES`. Each function looks at the place, and explains it or
returns None. If none of them explains it, the token is "not expected here".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from tidelog.errors import did_you_mean
from tidelog.lang.error_place import ErrorPlace, begins_statement, directive_before
from tidelog.lang.foreign import stray_hint
from tidelog.lang.lexer import AGGREGATES, QUALIFIERS
from tidelog.lang.tokens import (
    CLOSING,
    DIRECTIVE_TOKENS,
    OPENING,
    OPERANDS,
    UNREADABLE,
    ends_value,
    next_line,
)
from tidelog.source import Span

DIRECTIVES = [
    ".decl",
    ".type",
    ".input",
    ".output",
    ".printsize",
    ".view",
    ".retain",
    ".comp",
    ".init",
    ".override",
    ".plan",
    ".pragma",
    ".number_type",
    ".symbol_type",
]
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_OPERATORS = frozenset(
    {"PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "CARET", "EQUAL", "COMPARE", "BANG", "SHIFT"}
    | {"LOR", "LXOR", "LAND", "BOR", "BXOR", "BAND", "BNOT", "LNOT"}
)
_WORDS = frozenset(
    {"LOR", "LXOR", "LAND", "BOR", "BXOR", "BAND", "SHIFT", "BNOT", "LNOT", "TRUE", "FALSE", "NIL"}
)
_END_OF_STATEMENT = "rules and facts end with `.`"
_COLUMNS = "columns are written `name: type`"
_RULE = "a rule is written `head :- body.`"


@dataclass(frozen=True)
class Mistake:
    """What is wrong, where, and where parsing can continue.

    Without `resume`, it continues after the statement, whose end is searched from `skip_from` on.
    """

    message: str
    span: Span
    hint: str | None = None
    code: str = "syntax"
    resume: int | None = None
    skip_from: int | None = None


def explain(place: ErrorPlace) -> Mistake:
    """Return what is wrong at `place`."""
    for recognise in _MISTAKES:
        mistake = recognise(place)
        if mistake is not None:
            return mistake
    if place.begins_statement:
        what = "rule" if place.is_rule else f"`{place.first}`"
        hint = _END_OF_STATEMENT if place.is_rule else _expected(place)
        message = f"this {what} is not complete"
        resume = place.position
        return Mistake(message, place.after(), hint, code="unexpected-end", resume=resume)
    return Mistake(f"`{place.token}` is not expected here", place.here(), _expected(place))


def _expected(place: ErrorPlace) -> str | None:
    """Return what was expected here, if that is short enough to help."""
    names = {
        "IDENT": "a name", "INT": "an integer", "STRING": "a string", "DOT": "`.`", "COMMA": "`,`",
        "COLON": "`:`", "LPAR": "`(`", "RPAR": "`)`", "LSQB": "`[`", "RSQB": "`]`", "LBRACE": "`{`",
        "RBRACE": "`}`", "EQUAL": "`=`", "SUBTYPE": "`<:`", "PIPE": "`|`", "IF": "`:-`",
        "SEMICOLON": "`;`",
    }  # fmt: skip
    wanted = sorted(names[t] for t in place.accepts if t in names)
    if not wanted or len(wanted) > 3 or any(t not in names for t in place.accepts if t != "$END"):
        return None
    return f"expected {' or '.join(wanted)}"


# --- one function for each mistake ------------------------------------------------------------


def _unreadable(place: ErrorPlace) -> Mistake | None:
    token = place.token
    if token is None or token.type not in UNREADABLE:
        return None
    span = place.span(token)
    match token.type:
        case "UNTERMINATED_STRING":
            return Mistake(
                "this string has no closing quote on its line", span,
                'close it with `"`; a line end inside a string is written `\\n`',
                code="unterminated-string",
            )  # fmt: skip
        case "UNTERMINATED_COMMENT":
            start = Span(place.source, span.line, span.column, span.line, span.column + 2)
            return Mistake(
                "this comment is never closed", start, "close it with `*/`",
                code="unterminated-comment", resume=place.position + 1,
            )  # fmt: skip
        case "BAD_FRACTION":
            message = "a number needs a digit before its point"
            return Mistake(message, span, f"write `0{token}`", code="bad-number")
        case "BAD_NUMBER":
            hint = "names start with a letter or `_`"
            if token.replace("_", "").isdigit():
                hint = f"digits are written together: {token.replace('_', '')}"
            message = f"`{token}` is neither a number nor a name"
            return Mistake(message, span, hint, code="bad-number")
    return Mistake(
        f"`{token}` has no meaning here", span, stray_hint(str(token)), code="stray-character"
    )


def _lonely_full_stop(place: ErrorPlace) -> Mistake | None:
    if place.type != "DOT" or place.position != place.start:
        return None
    word = place.following
    dot = place.here()
    after = next_line(place.tokens, place.start)
    if word is None or not word[:1].isalpha() or word.column != dot.end_column:
        return Mistake("this full stop ends nothing", dot, "remove it", resume=place.start + 1)
    name = f".{word}"
    known = did_you_mean(name.lower(), DIRECTIVES) or f"the directives are {', '.join(DIRECTIVES)}"
    return Mistake(
        f"there is no directive `{name}`", dot.to(place.span(word)), known,
        code="unknown-directive", resume=after,
    )  # fmt: skip


def _after_declaration(place: ErrorPlace) -> Mistake | None:
    """Recognise text that was meant to belong to the directive before it, which is complete."""
    lone_name = len(place.read) == 1 and place.first.type == "IDENT"
    found = directive_before(place.tokens, place.start)
    if found is None or (place.read and not lone_name):
        return None
    directive = place.tokens[found]
    hint = 'parameters are written `(name="value")`'
    if directive.type == "TYPE":
        hint = "a type is declared `.type A <: B`, `.type A = B | C` or `.type A = [a: t, b: t]`"
    elif directive.type == "DECL" and place.type == "COMMA":
        hint = "all columns go inside the brackets"
    elif directive.type == "DECL":
        guess = did_you_mean(str(place.first), QUALIFIERS)
        hint = guess or f"the qualifiers are {', '.join(sorted(QUALIFIERS))}"
    return Mistake(
        f"`{place.first}` has no meaning after this `{directive}`", place.span(place.first), hint,
        resume=place.position if lone_name else None,
    )  # fmt: skip


def _missing_head(place: ErrorPlace) -> Mistake | None:
    if place.type != "IF" or place.position != place.start:
        return None
    return Mistake(
        "this rule has no head", place.here(),
        "give what it finds a relation: `found(x) :- conditions.`",
    )  # fmt: skip


def _wrong_bracket(place: ErrorPlace) -> Mistake | None:
    if place.type not in CLOSING:
        return None
    if not place.open:
        return Mistake(f"this `{place.token}` closes nothing", place.here(), "remove it")
    opened = place.open[-1]
    if _PAIRS[str(opened)] == place.token:
        return None
    where = f"column {opened.column}"
    if opened.line != place.here().line:
        where = f"line {opened.line}, {where}"
    return Mistake(
        f"`{place.token}` cannot close the `{opened}` of {where}", place.here(),
        f"close it with `{_PAIRS[str(opened)]}`",
    )  # fmt: skip


def _full_stop_in_brackets(place: ErrorPlace) -> Mistake | None:
    """Recognise `edge(x. y)`: the bracket is closed after the full stop, on its line."""
    if place.type != "DOT" or not place.open:
        return None
    depth = 0
    for token in place.tokens[place.position + 1 : next_line(place.tokens, place.position)]:
        depth += (token.type in OPENING) - (token.type in CLOSING)
        if depth < 0:
            return Mistake(
                "this full stop is inside brackets", place.here(),
                "it ends a rule: remove it, or write `,`", skip_from=place.position + 1,
            )  # fmt: skip
    return None


def _missing_name(place: ErrorPlace) -> Mistake | None:
    previous = place.previous
    if previous is None or previous.type not in DIRECTIVE_TOKENS - {"PLAN", "PRAGMA"}:
        return None
    if place.type in _WORDS:
        return None
    hint = f"write `{previous} name{'(column: type)' if previous.type == 'DECL' else ''}`"
    return Mistake(
        f"the name is missing after `{previous}`", place.span(previous), hint,
        resume=place.position if place.begins_statement else None,
    )  # fmt: skip


def _unclosed_bracket(place: ErrorPlace) -> Mistake | None:
    ends_here = place.type in ("DOT", "IF") or place.begins_statement
    if not ends_here or not place.open:
        return None
    opened = place.open[-1]
    return Mistake(
        f"this `{opened}` is not closed", place.span(opened),
        f"close it with `{_PAIRS[str(opened)]}`",
        resume=place.position if place.begins_statement else None,
    )  # fmt: skip


def _empty_body(place: ErrorPlace) -> Mistake | None:
    if place.previous is None or place.previous.type != "IF":
        return None
    if place.type != "DOT" and not place.begins_statement:
        return None
    return Mistake(
        "the body of this rule is empty", place.span(place.previous),
        "a fact is written without `:-`",
        resume=place.position if place.begins_statement else None,
    )  # fmt: skip


def _idle_comma(place: ErrorPlace) -> Mistake | None:
    previous = place.previous
    if previous is not None and previous.type == "COMMA":
        if place.type == "COMMA":
            return Mistake(
                "there is nothing between these commas", place.here(), "remove one of them"
            )
        if place.type in CLOSING | {"DOT", "SEMICOLON"} or place.begins_statement:
            hint = "remove it"
            if place.begins_statement:
                hint = "remove it, or end the rule with `.` instead" if place.is_rule else hint
            return Mistake(
                "nothing follows this comma", place.span(previous), hint,
                resume=place.position if place.begins_statement else None,
            )  # fmt: skip
    if place.type == "COMMA" and previous is not None and previous.type in OPENING | {"IF"}:
        return Mistake("there is nothing before this comma", place.here(), "remove it")
    return None


def _incomplete_columns(place: ErrorPlace) -> Mistake | None:
    previous = place.previous
    if place.first.type not in ("DECL", "TYPE") or previous is None:
        return None
    resume = place.position if place.begins_statement else None
    if previous.type == "IDENT" and "COLON" in place.accepts:
        if place.type == "IDENT":
            message = f"a `:` is missing between `{previous}` and `{place.token}`"
            return Mistake(message, place.here(), _COLUMNS)
        return Mistake(
            f"`{previous}` has no type", place.span(previous), f"{_COLUMNS}: `{previous}: number`"
        )
    if previous.type == "COLON" and place.type != "IDENT":
        return Mistake("the type is missing after this colon", place.span(previous), _COLUMNS)
    if previous.type == "RSQB" and "COLON" in place.accepts and place.first.type == "DECL":
        return Mistake(
            "the type of the value is missing", place.after(),
            "a functional relation is declared `.decl price[item: symbol]: number`", resume=resume,
        )  # fmt: skip
    if place.first.type == "DECL" and previous.type == "IDENT" and "LPAR" in place.accepts:
        return Mistake(
            f"the columns of `{previous}` are missing", place.span(previous),
            f"a relation without columns is declared `.decl {previous}()`", resume=resume,
        )  # fmt: skip
    return None


def _component_head(place: ErrorPlace) -> Mistake | None:
    if place.first.type not in ("COMP", "INIT"):
        return None
    form = ".comp Name<T> : Base<T> { .. }" if place.first.type == "COMP" else ".init c = Name<T>"
    what = "component" if place.first.type == "COMP" else "instance"
    hint = f"{'a' if what == 'component' else 'an'} {what} is declared `{form}`"
    if place.begins_statement:
        message = f"this `{place.first}` is not complete"
        return Mistake(message, place.after(), hint, "unexpected-end", place.position)
    return Mistake(f"`{place.token}` is not expected here", place.here(), hint)


def _column_types_in_rule(place: ErrorPlace) -> Mistake | None:
    previous = place.previous
    if place.type != "COLON" or not place.is_rule or not place.open or previous is None:
        return None
    if previous.type != "IDENT" or place.following is None or place.following.type != "IDENT":
        return None
    hint = "types belong in the declaration of a relation"
    if not place.has_if and len(place.open) == 1:
        hint = f"to declare a relation write `.decl {place.first}(..)`"
    return Mistake(f"`{previous}` cannot have a type here", place.here(), hint)


def _bad_parameter(place: ErrorPlace) -> Mistake | None:
    if place.first.type != "DIRECTIVE" or not place.open or place.previous is None:
        return None
    value_at = [i for i, token in enumerate(place.read) if token.type == "EQUAL"]
    if value_at and len(place.read) - value_at[-1] <= 2 and place.type not in ("COMMA", "RPAR"):
        return Mistake(
            "this value needs quotes", place.here(), 'parameters are written `name="value"`'
        )
    return None


def _missing_full_stop(place: ErrorPlace) -> Mistake | None:
    if "DOT" not in place.accepts or not place.begins_statement:
        return None
    kind = "rule" if place.has_if else "fact"
    return Mistake(
        f"this {kind} has no full stop at its end", place.after(), _END_OF_STATEMENT,
        resume=place.position,
    )  # fmt: skip


def _second_if(place: ErrorPlace) -> Mistake | None:
    if place.type != "IF" or not place.has_if:
        return None
    # `a(x) :- b(x),` and on the next line `c(x) :- ..`: then the comma is the mistake.
    for i in range(place.position - 1, place.start, -1):
        comma = place.tokens[i - 1]
        if comma.type == "COMMA" and begins_statement(place.tokens, place.start, i):
            return Mistake(
                "this rule ends with a comma", place.span(comma), _END_OF_STATEMENT, resume=i
            )
    return Mistake("this rule has a second `:-`", place.here(), "end the rule before it with `.`")


def _alternatives_in_head(place: ErrorPlace) -> Mistake | None:
    if place.type != "SEMICOLON" or place.has_if or not place.is_rule or place.open:
        return None
    return Mistake(
        "the head of a rule cannot have alternatives", place.here(),
        "several heads are separated by `,`: all of them hold",
    )  # fmt: skip


def _chained_comparison(place: ErrorPlace) -> Mistake | None:
    if place.type not in ("EQUAL", "COMPARE") or not ends_value(place.previous):
        return None
    if not any(token.type in ("EQUAL", "COMPARE") for token in place.read):
        return None
    return Mistake(
        "comparisons cannot be chained", place.here(), "write two conditions: `a < b, b < c`"
    )


def _brace(place: ErrorPlace) -> Mistake | None:
    if place.type != "LBRACE":
        return None
    aggregates = [token for token in place.read if token.type == "AGGREGATE"]
    if aggregates and "COLON" in place.accepts:
        return Mistake(
            "a `:` is missing before this brace", place.here(),
            f"an aggregate is written `{aggregates[-1]} x : {{ conditions }}`",
        )  # fmt: skip
    return Mistake(
        "braces only enclose the conditions of an aggregate", place.here(),
        "a record is written `[a, b]`",
    )  # fmt: skip


def _unknown_aggregate(place: ErrorPlace) -> Mistake | None:
    name = place.previous
    if name is None or name.type != "IDENT" or not place.is_rule:
        return None
    for token, after in pairwise(place.tokens[place.position :]):
        if token.type == "COLON" and after.type == "LBRACE":
            break
        if token.type in ("COMMA", "SEMICOLON", "DOT", "IF"):
            return None
    else:
        return None
    known = f"the aggregates are {', '.join(sorted(AGGREGATES))}"
    guess = "did you mean `mean`?" if name.lower() in ("avg", "average") else None
    return Mistake(
        f"there is no aggregate `{name}`", place.span(name),
        guess or did_you_mean(name.lower(), AGGREGATES) or known, code="unknown-functor",
    )  # fmt: skip


def _two_in_a_row(place: ErrorPlace) -> Mistake | None:
    if not place.is_rule or not ends_value(place.previous):
        return None
    if place.type not in OPERANDS | {"BANG", "LPAR", "LSQB", "AGGREGATE", "DOLLAR", "AT"}:
        return None
    if place.open:
        hint = "arguments are separated by `,`"
        if place.open[-1].type == "LBRACE":
            hint = "conditions are joined with `,`"
        return Mistake(f"a `,` is missing before `{place.token}`", place.here(), hint)
    if place.has_if:
        hint = "conditions are joined with `,`"
        return Mistake(f"a `,` is missing before `{place.token}`", place.here(), hint)
    return Mistake(
        f"`:-` or `.` is missing before `{place.token}`", place.here(),
        f"{_RULE}, a fact `relation(values).`",
    )  # fmt: skip


def _reserved_word(place: ErrorPlace) -> Mistake | None:
    if place.type not in _WORDS or "IDENT" not in place.accepts:
        return None
    return Mistake(f"`{place.token}` is a reserved word", place.here(), "choose another name")


def _missing_side(place: ErrorPlace) -> Mistake | None:
    previous = place.previous
    if not place.is_rule:
        return None
    if previous is not None and previous.type in _OPERATORS:
        return Mistake(
            f"something is missing after `{previous}`", place.span(previous),
            "a value must follow" if previous.type != "BANG" else "an atom must follow",
            resume=place.position if place.begins_statement else None,
        )  # fmt: skip
    if place.type in _OPERATORS and not ends_value(previous):
        return Mistake(
            f"something is missing before `{place.token}`", place.here(),
            "a value must stand on both sides",
        )  # fmt: skip
    return None


def _pipe(place: ErrorPlace) -> Mistake | None:
    if place.type != "PIPE" or not place.is_rule:
        return None
    return Mistake("`|` has no meaning here", place.here(), stray_hint("|"), code="stray-character")


def _plan_without_rule(place: ErrorPlace) -> Mistake | None:
    if place.type != "PLAN" or place.position != place.start:
        return None
    return Mistake("there is no rule before this `.plan`", place.here(), "put it after its rule")


_MISTAKES: tuple[Callable[[ErrorPlace], Mistake | None], ...] = (
    _unreadable,
    _lonely_full_stop,
    _after_declaration,
    _missing_head,
    _plan_without_rule,
    _missing_name,
    _wrong_bracket,
    _full_stop_in_brackets,
    _unclosed_bracket,
    _empty_body,
    _idle_comma,
    _incomplete_columns,
    _component_head,
    _column_types_in_rule,
    _bad_parameter,
    _missing_full_stop,
    _second_if,
    _alternatives_in_head,
    _chained_comparison,
    _unknown_aggregate,
    _brace,
    _two_in_a_row,
    _reserved_word,
    _missing_side,
    _pipe,
)
