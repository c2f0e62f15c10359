"""Values of a pipeline file that are taken from the environment: `${NAME}`.

Tidelog treats them all as secrets. The `repr` of such a value is the name of its variable, and
`scrub` replaces the value by that name wherever a message quotes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from tidelog.errors import UsageError

_NAMED = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHORT = 4  # characters: shorter values would be found everywhere

_taken: dict[str, str] = {}
"""What to hide, and what is shown instead."""


class Taken(str):
    """A text with values from the environment. It is shown as it was written."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, value: str, written: str = "") -> Taken:
        """Return the value, which was written as `written`."""
        made = super().__new__(cls, value)
        made.written = written
        return made

    def __reduce__(self) -> tuple[type[Taken], tuple[str, str]]:
        return Taken, (str.__str__(self), self.written)

    def __repr__(self) -> str:
        return repr(self.written)


def expand(text: str, environment: Mapping[str, str] | None = None) -> str:
    r"""Return a text with the values of variables; raise UsageError for one that is not set.

    >>> expand("user=${USER_NAME}", {"USER_NAME": "tide"}) == "user=tide"
    True
    >>> expand("$${USER_NAME}", {})
    '${USER_NAME}'
    """
    known = os.environ if environment is None else environment
    found: dict[str, str] = {}

    def value_of(match: re.Match[str]) -> str:
        if match[0] == "$${":
            return "${"
        name = match[1]
        if name is None or not _NAME.fullmatch(name):
            raise UsageError(
                "`${` must be followed by the name of a variable and `}`\n  help: write `$${` for"
                " the characters `${` themselves"
            )
        if name not in known:
            raise UsageError(
                f"the environment has no variable `{name}`\n  help: set it, or write `$${{{name}}}`"
                " for the text itself"
            )
        found[name] = known[name]
        return known[name]

    result = _NAMED.sub(value_of, text)
    if not found:
        return result
    for name, value in found.items():
        if len(value) >= _SHORT:
            _taken[value] = f"${{{name}}}"
    return Taken(result, text)


def scrub(text: str) -> str:
    """Return a text with the names of variables instead of values that were taken from them."""
    for value in sorted(_taken, key=len, reverse=True):
        text = text.replace(value, _taken[value])
    return text
