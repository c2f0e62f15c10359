"""Regular expressions as programs write them: ECMAScript's, which name classes as POSIX does."""

from __future__ import annotations

import re

_CLASS = re.compile(r"\[:(\w+):\]")
_CLASSES = {
    "digit": r"\d", "alpha": "A-Za-z", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z",
    "space": r"\s", "blank": r" \t", "xdigit": "0-9A-Fa-f", "w": r"\w", "d": r"\d", "s": r"\s",
    "punct": r"!-/:-@\[-`{-~",
}  # fmt: skip


def python_pattern(pattern: str) -> str:
    r"""Return the pattern with classes as Python writes them.

    >>> python_pattern("[[:digit:]_]+")
    '[\\d_]+'
    """
    return _CLASS.sub(lambda m: _CLASSES.get(m[1], m[0]), pattern)
