"""Functions from Python: registered by name, then used in programs like functors.

tidelog.function("hypot", math.hypot, "float, float -> float")
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tidelog.database.register import BUILT_IN, NAME, type_of
from tidelog.errors import UsageError, did_you_mean
from tidelog.logic import registry
from tidelog.values.functions import UserFunction

_COMMA = re.compile(r",(?![^(]*\))")  # not that of decimal(10,2)


def function(
    name: str,
    f: Callable[..., Any],
    types: str,
    *,
    vectorised: bool = False,
    replace: bool = False,
) -> None:
    """Register a function, to be written `name(x, ..)` in programs.

    `types` are those of the arguments and of the result, written as in declarations:
    `"number, symbol -> float"`. The function must be deterministic: it returns the same result for
    the same arguments, always. It is called with Python values, row by row. If `vectorised` is
    true, it is called with NumPy arrays, and returns as many results as they have rows. An
    exception is an error of data. A name that is registered already is refused, unless `replace` is
    true. Existing programs are not affected.
    """
    if not NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid function name")
    if name in BUILT_IN:
        raise UsageError(f"a function cannot be called `{name}`: that is a word of the language")
    if not callable(f):
        raise UsageError(f"function `{name}` needs something to call, not {type(f).__name__}")
    before, arrow, gives = types.partition("->")
    if not arrow:
        raise UsageError(f"`types` is written 'number, symbol -> float', not {types!r}")
    takes = tuple(
        type_of(text.strip(), f"argument {i}")
        for i, text in enumerate(_COMMA.split(before) if before.strip() else (), start=1)
    )
    made = UserFunction(name, f, takes, type_of(gives.strip(), "result"), vectorised)
    if not registry.remember_function(made, replace=replace):
        raise UsageError(
            f"a function `{name}` is registered already;"
            " forget it with `forget_function`, or say `replace=True`"
        )


def forget_function(name: str) -> None:
    """Remove a registered function. Programs that use it are not affected."""
    if not registry.forget_function(name):
        hint = did_you_mean(name, registry.functions())
        raise UsageError(f"no function `{name}` is registered" + (f"; {hint}" if hint else ""))
