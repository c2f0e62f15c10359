"""Records and sets, from text and to text.

Written as Soufflé writes them: `[1, [2, nil]]` for records; and `{a, b}` for sets, sorted. A symbol
inside is plain text up to the next `,` or closing bracket. Where that would not read back (the
symbol contains one of these, or begins with a quote or a space) it is written in double quotes
with backslashes, which Soufflé reads too.

A record whose fields are called `$Circle`, `$Square` is a value of an algebraic data type
(logic/algebraic.py): all fields but one are nil, and it is written `$Circle(2)`, or `$Empty` if the
branch has no fields.

Lists are records in records, often thousands deep, so both directions keep their own stack instead
of recursion.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tidelog.values.order import Records, sort_key
from tidelog.values.scalars import scalar_formatter, scalar_parser, shown
from tidelog.values.types import Kind, Type

_SPACE = re.compile(r"[ \t\n\r\f\v]*")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_PLAIN = {
    "]": re.compile(r"[^,\]]*"),
    "}": re.compile(r"[^,}]*"),
    ")": re.compile(r"[^,)]*"),
}
_BRANCH = re.compile(r"\$[?A-Za-z_][?A-Za-z0-9_.]*")


@dataclass
class _Open:
    """A record or a set whose closing bracket has not been read yet."""

    type: Type
    parts: tuple[Type, ...]
    values: list[Any] = field(default_factory=list)
    place: tuple[int, int] | None = None
    """For a branch, which part of its record it is, and of how many."""

    @property
    def closing(self) -> str:
        if self.place is not None:
            return ")"
        return "]" if self.type.kind is Kind.RECORD else "}"

    @property
    def wanted(self) -> Type:
        """Return the type of the next part."""
        return self.parts[len(self.values)] if self.type.kind is Kind.RECORD else self.parts[0]

    def close(self) -> Any:
        if self.place is not None:
            index, count = self.place
            return tuple(tuple(self.values) if i == index else None for i in range(count))
        return tuple(self.values) if self.type.kind is Kind.RECORD else frozenset(self.values)


def parse_nested(text: str, type: Type, records: Records) -> Any:
    """Return the record or set that `text` denotes; raise ValueError with the reason if none."""
    value, end = scan_nested(text, 0, type, records)
    end = _skip(text, end)
    if end != len(text):
        raise _mistake(text, end, type, "the end")
    return value


def scan_nested(text: str, start: int, type: Type, records: Records) -> tuple[Any, int]:
    """Return the record or set that begins at `start` of `text`, and the position after it."""
    at = start
    wanted = type
    stack: list[_Open] = []
    while True:
        at = _skip(text, at)
        if branches := _branches(wanted, records):
            name = _BRANCH.match(text, at)
            if name is None or name[0] not in branches:
                raise _mistake(text, at, type, " or ".join(f"`{b}`" for b in reversed(branches)))
            index = branches.index(name[0])
            part = records[wanted.record][index].type
            opened = _Open(part, _parts(part, records), place=(index, len(branches)))
            at = name.end()
            if opened.parts:
                at = _skip(text, at)
                if text[at : at + 1] != "(":
                    raise _mistake(text, at, type, "`(`")
                stack.append(opened)
                at, wanted = at + 1, opened.wanted
                continue
            value = opened.close()
        elif wanted.kind is Kind.RECORD and text.startswith("nil", at):
            value, at = None, at + 3
        elif wanted.kind in (Kind.RECORD, Kind.SET):
            record = wanted.kind is Kind.RECORD
            if text[at : at + 1] != ("[" if record else "{"):
                raise _mistake(text, at, type, "`[` or `nil`" if record else "`{`")
            stack.append(_Open(wanted, _parts(wanted, records)))
            at = _skip(text, at + 1)
            empty = not stack[-1].parts if record else text[at : at + 1] == "}"
            if not empty:
                wanted = stack[-1].wanted
                continue
            if text[at : at + 1] != stack[-1].closing:
                raise _mistake(text, at, type, f"`{stack[-1].closing}`")
            value, at = stack.pop().close(), at + 1
        else:
            value, at = _scalar(text, at, wanted, stack[-1].closing)
        # One value is complete; add it to what encloses it, which may be complete then.
        while stack:
            top = stack[-1]
            top.values.append(value)
            at = _skip(text, at)
            full = top.type.kind is Kind.RECORD and len(top.values) == len(top.parts)
            if text[at : at + 1] == "," and not full:
                at += 1
                wanted = top.wanted
                break
            if text[at : at + 1] != top.closing or (top.type.kind is Kind.RECORD and not full):
                expected = f"`{top.closing}`" if full else "`,`"
                raise _mistake(text, at, type, expected)
            value, at = stack.pop().close(), at + 1
        else:
            return value, at


def format_nested(value: Any, type: Type, records: Records) -> str:
    """Return the text of a record or a set."""
    out: list[str] = []
    # What remains to be written, the next piece last: text, or a value with its type and the
    # closing bracket of what contains it.
    work: list[str | tuple[Any, Type, str]] = [(value, type, "")]
    while work:
        item = work.pop()
        if isinstance(item, str):
            out.append(item)
            continue
        current, kind, closing = item
        if kind.kind is Kind.RECORD and current is None:
            out.append("nil")
        elif branches := _branches(kind, records):
            index = next(i for i, part in enumerate(current) if part is not None)
            out.append(branches[index])
            parts = _parts(records[kind.record][index].type, records)
            if parts:
                out.append("(")
                work.append(")")
                for i in reversed(range(len(parts))):
                    work.append((current[index][i], parts[i], ")"))
                    if i:
                        work.append(", ")
        elif kind.kind in (Kind.RECORD, Kind.SET):
            record = kind.kind is Kind.RECORD
            out.append("[" if record else "{")
            end = "]" if record else "}"
            work.append(end)
            parts = _parts(kind, records)
            values = current if record else sorted(current, key=sort_key(parts[0], records))
            for index in reversed(range(len(values))):
                work.append((values[index], parts[index if record else 0], end))
                if index:
                    work.append(", ")
        elif kind.kind is Kind.SYMBOL:
            out.append(_format_symbol(current, closing))
        else:
            out.append(scalar_formatter(kind)(current))
    return "".join(out)


def _branches(type: Type, records: Records) -> list[str]:
    """Return the branches of an algebraic data type, as they are written; none for other types."""
    if type.kind is not Kind.RECORD:
        return []
    return [part.name for part in records[type.record] if part.name.startswith("$")]


def _parts(type: Type, records: Records) -> tuple[Type, ...]:
    if type.kind is Kind.RECORD:
        return tuple(part.type for part in records[type.record])
    assert type.element is not None
    return (type.element,)


def _scalar(text: str, at: int, type: Type, closing: str) -> tuple[Any, int]:
    if type.kind is Kind.SYMBOL and text.startswith('"', at):
        quoted = _QUOTED.match(text, at)
        if quoted is None:
            raise ValueError(f'{shown(text)}: no closing `"` for the one at character {at + 1}')
        return _ESCAPE.sub(r"\1", quoted[1]), quoted.end()
    plain = _PLAIN[closing].match(text, at)
    assert plain is not None
    word = plain[0] if type.kind is Kind.SYMBOL else plain[0].rstrip(" \t")
    return scalar_parser(type)(word), plain.end()


def _format_symbol(text: str, closing: str) -> str:
    # An empty symbol is visible in a record, but `{}` is the empty set.
    plain = "," not in text and closing not in text and not text[:1].isspace()
    if plain and not text.startswith('"') and (text or closing in "])"):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _mistake(text: str, at: int, type: Type, expected: str) -> ValueError:
    found = f"`{text[at]}`" if at < len(text) else "the end"
    place = f"expected {expected} at character {at + 1}, found {found}"
    return ValueError(f"{shown(text)} is not a {type}: {place}")
