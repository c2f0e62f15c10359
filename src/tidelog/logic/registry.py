"""The aggregates and functions that are registered from Python.

A program takes those that it needs when it is analysed. Registering or forgetting one
later does not change an existing program. Names and the laws of an algebra are checked before an
aggregate is registered here (database/register.py).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tidelog.values.algebra import UserAggregate
from tidelog.values.functions import UserFunction

_registered: dict[str, UserAggregate] = {}
_functions: dict[str, UserFunction] = {}
_lock = threading.Lock()


def registered() -> Mapping[str, UserAggregate]:
    """Return the registered aggregates by name."""
    with _lock:
        return dict(_registered)


def remember(aggregate: UserAggregate, *, replace: bool) -> bool:
    """Register an aggregate; return False if its name is taken and may not be replaced."""
    with _lock:
        if aggregate.name in _registered and not replace:
            return False
        _registered[aggregate.name] = aggregate
        return True


def forget(name: str) -> bool:
    """Forget an aggregate; return whether there was one."""
    with _lock:
        return _registered.pop(name, None) is not None


def functions() -> Mapping[str, UserFunction]:
    """Return the registered functions by name."""
    with _lock:
        return dict(_functions)


def remember_function(function: UserFunction, *, replace: bool) -> bool:
    """Register a function; return False if its name is taken and may not be replaced."""
    with _lock:
        if function in _functions and not replace:
            return False
        _functions[str(function)] = function
        return True


def forget_function(name: str) -> bool:
    """Forget a function; return whether there was one."""
    with _lock:
        return _functions.pop(name, None) is not None
