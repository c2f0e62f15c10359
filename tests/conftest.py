"""Settings shared by all tests."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

from tests.scheduling import InUnits, longest_first

# Every run draws new examples, and a failure prints the blob which reproduces it. The parent is
# named so that Hypothesis's own profile for CI machines (fixed examples) does not leak in.
settings.register_profile(
    "ci",
    parent=settings.get_profile("default"),
    derandomize=False,
    print_blob=True,
    deadline=None,
)
settings.load_profile("ci")

# Every Java that a test starts, by whatever process: they end too soon for the better compiler, and
# for collecting garbage on all processors, to be worth their time.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: longest_first(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InUnits:
    return InUnits(config, log)
