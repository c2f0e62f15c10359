"""The aggregates that are registered from Python.

A program takes the aggregates that it needs when it is analysed. Registering or forgetting one
later does not change an existing program. Names and the laws of an algebra are checked before an
aggregate is registered here (database/register.py).
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from tidelog.values.algebra import UserAggregate

_registered: dict[str, UserAggregate] = {}
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
