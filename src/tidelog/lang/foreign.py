"""Signs and words of other languages: reported with Tidelog's own ones, then read as those.

`==`, `<>`, `not`, 'text' and `% comment` are written by people who also write SQL, Prolog or
Python. The meaning is clear, so the token is replaced and the rest of the rule is still checked. A
sign whose meaning is not clear becomes a STRAY token: the parser reports it and skips the
statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelog.lang.diagnostics import Diagnostics
from tidelog.lang.tokens import (
    CLOSING,
    DIRECTIVE_TOKENS,
    OPENING,
    ends_value,
    next_line,
    span_of,
    starts_rule,
)
from tidelog.source import SourceText

if TYPE_CHECKING:
    from lark import Token

_RULE = "a rule is written `head :- body.`"
_NEGATION = "negation is written `!`"
_AND = "conditions are joined with `,`"
_OR = "alternatives are separated by `;`"
_EQUAL = "equality is written `=`"
_UNEQUAL = "inequality is written `!=`"

# The text in the program -> the token that Tidelog has for it, and the help.
_COMPARISONS = {
    "==": ("EQUAL", "=", _EQUAL),
    "=:=": ("EQUAL", "=", _EQUAL),
    "<>": ("COMPARE", "!=", _UNEQUAL),
    "!==": ("COMPARE", "!=", _UNEQUAL),
    "/=": ("COMPARE", "!=", _UNEQUAL),
    "\\=": ("COMPARE", "!=", _UNEQUAL),
    "=\\=": ("COMPARE", "!=", _UNEQUAL),
    "≠": ("COMPARE", "!=", _UNEQUAL),
    "=<": ("COMPARE", "<=", "less or equal is written `<=`"),
    "≤": ("COMPARE", "<=", "less or equal is written `<=`"),
    "≥": ("COMPARE", ">=", "greater or equal is written `>=`"),
}
_IN_BODY = {
    ":=": ("EQUAL", "=", _EQUAL),
    "=>": ("COMPARE", ">=", "greater or equal is written `>=`"),
}
_AFTER_HEAD = {
    "<-": ("IF", ":-", _RULE),
    ":=": ("IF", ":-", _RULE),
    "←": ("IF", ":-", _RULE),
    "if": ("IF", ":-", _RULE),
}
_BETWEEN_CONDITIONS = {
    "&": ("COMMA", ",", _AND),
    "&&": ("COMMA", ",", _AND),
    "∧": ("COMMA", ",", _AND),
    "and": ("COMMA", ",", _AND),
    "|": ("SEMICOLON", ";", _OR),
    "||": ("SEMICOLON", ";", _OR),
    "∨": ("SEMICOLON", ";", _OR),
    "or": ("SEMICOLON", ";", _OR),
}
_BEFORE_CONDITION = {
    "~": ("BANG", "!", _NEGATION),
    "¬": ("BANG", "!", _NEGATION),
    "\\+": ("BANG", "!", _NEGATION),
    "not": ("BANG", "!", _NEGATION),
}
_BETWEEN_VALUES = {
    "is": ("EQUAL", "=", _EQUAL),
    "mod": ("PERCENT", "%", "the remainder is written `%`"),
    "div": ("SLASH", "/", "division is written `/`"),
}
_Replacements = dict[str, tuple[str, str, str]]
_KNOWN = frozenset().union(
    _COMPARISONS, _IN_BODY, _AFTER_HEAD, _BETWEEN_CONDITIONS, _BEFORE_CONDITION, _BETWEEN_VALUES
)
_SIGNS = frozenset({"STRAY", "EQUAL", "COMPARE", "COLON", "MINUS", "PLUS", "SLASH", "PIPE"})

_STRAY_HINTS = {
    "#": "comments start with `//`",
    "'": 'strings are written in double quotes: "text"',
    "“": 'strings are written in double quotes: "text"',
    "”": 'strings are written in double quotes: "text"',
    "`": 'strings are written in double quotes: "text"',
    "&": f"{_AND}, bits with `band`",
    "&&": f"{_AND}, truth values with `land`",
    "|": f"{_OR}, bits are joined with `bor`",
    "||": f"{_OR}; strings are joined with `cat(a, b)`",
    "~": f"{_NEGATION}, the complement of bits `bnot`",
    "\\": "bit and logical operators are words: band, bor, bxor, bnot",
    "=>": _RULE,
    "->": _RULE,
    "?-": "Datalog has no queries: give the answer a relation, `answer(x) :- conditions.`, and name"
    " it in `.output`",
}


def stray_hint(text: str) -> str | None:
    """Return what is likely meant by a sign that has no meaning.

    >>> stray_hint("=>")
    'a rule is written `head :- body.`'
    """
    if text.isalpha():
        return "names are made of the letters a to z, digits, `_` and `?`"
    return _STRAY_HINTS.get(text)


@dataclass
class _Statement:
    """The approximate place in a statement, because statements are parsed later."""

    in_directive: bool = False
    has_if: bool = False
    depth: int = 0

    def step(self, token: Token) -> None:
        if token.type == "DOT" or token.type in DIRECTIVE_TOKENS:
            self.in_directive, self.has_if, self.depth = token.type != "DOT", False, 0
        elif token.type == "IF":
            self.in_directive, self.has_if = False, True
        elif token.type in OPENING:
            self.depth += 1
        elif token.type in CLOSING:
            self.depth -= 1


def replace_foreign(
    source: SourceText, tokens: list[Token], diagnostics: Diagnostics
) -> list[Token]:
    """Return the tokens with those of other languages reported and replaced."""
    out: list[Token] = []
    place = _Statement()
    i = 0
    while i < len(tokens):
        token = tokens[i]
        previous = out[-1] if out else None
        if _starts_comment(tokens, i, previous, place):
            sign = "--" if token == "-" else token
            diagnostics.error(
                "stray-character", f"`{sign}` does not start a comment",
                span_of(source, token).first(len(sign)), "comments start with `//`",
            )  # fmt: skip
            i = next_line(tokens, i)
            continue
        width = 1
        if token.type == "QUOTED":
            diagnostics.error(
                "stray-character", "these are not the quotes of a string",
                span_of(source, token), 'strings are written in double quotes: "text"',
            )  # fmt: skip
            inside = str(token)[1:-1].replace('"', '\\"')
            token = token.update(type="STRING", value=f'"{inside}"')
        elif token.type in _SIGNS or token.type == "IDENT":
            token, width, hint = _replacement(tokens, i, previous, place)
            if hint is not None:
                written = "".join(tokens[i : i + width])
                message = f"`{written}` is not a word of the language"
                if not written.isalpha():
                    message = f"there is no operator `{written}`"
                span = span_of(source, tokens[i]).to(span_of(source, tokens[i + width - 1]))
                diagnostics.error("foreign-operator", message, span, hint)
        if place.in_directive and place.depth == 0 and token.type == "IDENT":
            place.in_directive = not starts_rule(tokens, i)
        out.append(token)
        place.step(token)
        i += width
    return out


def _starts_comment(tokens: list[Token], i: int, previous: Token | None, place: _Statement) -> bool:
    """Return whether `#`, `%` or `--` is meant to start a comment here."""
    token = tokens[i]
    if place.depth > 0:
        return False
    if token == "#":
        return True
    fresh = previous is None or previous.type == "DOT"
    if place.in_directive and previous is not None:
        fresh = previous.line != token.line or previous.type in ("RPAR", "IDENT")
    if token.type == "MINUS" and tokens[i + 1 : i + 2] == ["-"] and _touch(tokens, i):
        return fresh
    # After a value, `%` is the remainder.
    return token.type == "PERCENT" and (fresh or not ends_value(previous))


def _replacement(
    tokens: list[Token], i: int, previous: Token | None, place: _Statement
) -> tuple[Token, int, str | None]:
    """Return the token for what stands at `i`, how many it covers, and the help if foreign."""
    for width in (3, 2, 1):
        written = _written(tokens, i, width)
        if written not in _KNOWN and written not in _STRAY_HINTS:
            continue  # the usual case
        following = tokens[i + width] if i + width < len(tokens) else None
        for known in _replacements(previous, following, place):
            if written in known:
                type_, text, hint = known[written]
                return tokens[i].update(type=type_, value=text), width, hint
        if width > 1 and written in _STRAY_HINTS and (written == "?-" or not place.in_directive):
            merged = tokens[i].update(type="STRAY", value=written)
            merged.end_column = tokens[i + width - 1].end_column
            return merged, width, None
    return tokens[i], 1, None


def _written(tokens: list[Token], i: int, width: int) -> str | None:
    """Return the text of `width` signs that touch each other, or one word in lower case."""
    part = tokens[i : i + width]
    if len(part) < width or not all(_touch(tokens, j) for j in range(i, i + width - 1)):
        return None
    if width == 1:
        return part[0].lower() if part[0].type == "IDENT" else str(part[0])
    signs = all(t.type in _SIGNS or t == "?" for t in part)  # a lone `?` is a name to the lexer
    return "".join(part) if signs else None


def _touch(tokens: list[Token], i: int) -> bool:
    return tokens[i].end_pos == tokens[i + 1].start_pos


def _replacements(
    previous: Token | None, following: Token | None, place: _Statement
) -> list[_Replacements]:
    """Return the replacements that apply between the two tokens."""
    if place.in_directive:
        return []
    found = [_COMPARISONS]
    starts = following is not None and following.type in ("IDENT", "BANG", "LPAR")
    if place.has_if:
        found.append(_IN_BODY)
    if previous is not None and previous.type in ("RPAR", "RSQB") and starts:
        found.append(_BETWEEN_CONDITIONS)
        if not place.has_if and place.depth == 0:
            found.append(_AFTER_HEAD)
    if not ends_value(previous) and following is not None and following.type == "IDENT":
        found.append(_BEFORE_CONDITION)
    if ends_value(previous) and following is not None and _starts_value(following):
        found.append(_BETWEEN_VALUES)
        if starts and place.has_if:
            found.append({word: _BETWEEN_CONDITIONS[word] for word in ("and", "or")})
    return found


def _starts_value(token: Token) -> bool:
    return token.type in ("IDENT", "INT", "FLOAT", "STRING", "LPAR", "MINUS")
