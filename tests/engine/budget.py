"""Says for a test whether the kernel updates recursive relations or bootstraps them."""

import pytest

import tidelog
from tidelog.database.database import kernel_of
from tidelog.maintain import elastic


def always_update(db: tidelog.Database) -> None:
    """Let updates take as long as they like."""
    _set_budget(db, None)


def always_bootstrap(db: tidelog.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give updates no time at all."""
    monkeypatch.setattr("tidelog.maintain.switch.LEAST_SECONDS", 0.0)
    _set_budget(db, 0.0)


def _set_budget(db: tidelog.Database, budget: float | None) -> None:
    for _, strategy in kernel_of(db).layers:
        if isinstance(strategy, elastic.Elastic):
            strategy.budget = budget
