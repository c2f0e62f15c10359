"""Functors and tests on text; regular expressions are kept compiled."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache

from tidelog.join.functors.common import Scalar, Uncomputable
from tidelog.logic.patterns import python_pattern
from tidelog.store.codec import Codec
from tidelog.values.scalars import symbol_ordinal


def _cat(codec: Codec) -> Scalar:
    items, number = codec.symbols.items, codec.symbols.number
    return lambda *parts: number("".join([items[part] for part in parts]))


def _strlen(codec: Codec) -> Scalar:
    items = codec.symbols.items
    return lambda text: len(items[text])


def _ord(codec: Codec) -> Scalar:
    items = codec.symbols.items
    return lambda text: symbol_ordinal(items[text])


def _substr(codec: Codec) -> Scalar:
    items, number = codec.symbols.items, codec.symbols.number

    def scalar(symbol: int, start: int, length: int) -> int:
        # As C++ has it: a negative length is a very large one.
        text: str = items[symbol]
        if not 0 <= start <= len(text):
            return number("")
        return number(text[start:] if length < 0 else text[start : start + length])

    return scalar


TEXT: dict[str, Callable[[Codec], Scalar]] = {
    "cat": _cat,
    "strlen": _strlen,
    "ord": _ord,
    "substr": _substr,
}


@lru_cache(maxsize=1024)
def _pattern(pattern: str) -> re.Pattern[str] | str:
    """Return the compiled pattern, or what is wrong with it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd but legal patterns are the user's business
            return re.compile(python_pattern(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        return f"`{pattern}` is not a regular expression: {error}"


def matches(pattern: str, text: str) -> bool:
    """Return whether the pattern matches the whole text; raise `Uncomputable`."""
    compiled = _pattern(pattern)
    if isinstance(compiled, str):
        raise Uncomputable(compiled)
    return compiled.fullmatch(text) is not None
