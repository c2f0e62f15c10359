"""Settings shared by all tests: the seed, signals, Hypothesis, and who runs what."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import core, settings

from tests import seeds
from tests.samples import LONG, in_sample
from tests.scheduling import InUnits, longest_first
from tidelog.cli.compiling import compile_first

# Examples follow from the seed, see below, and a failure prints the blob which reproduces it. The
# parent is named so that Hypothesis's own profile for CI machines (fixed examples) does not leak
# in.
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


def pytest_configure(config: pytest.Config) -> None:
    """Compile the kernels once, before workers of pytest-xdist start."""
    if not hasattr(config, "workerinput"):
        compile_first()


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive() -> None:
    """Let Ctrl-C interrupt this process, and those that it starts.

    A shell lets what it starts in the background ignore that signal, and so does nohup; processes
    pass this on to their children. Tests send it.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return seeds.header()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: longest_first(item.nodeid))
    is_named = config.option.keyword or any("::" in name for name in config.args)
    if not LONG and not is_named:
        kept = in_sample(items)
        names = {item.nodeid for item in kept}
        config.hook.pytest_deselected(items=[i for i in items if i.nodeid not in names])
        items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Give Hypothesis the seed of this test, unless --hypothesis-seed gives it one."""
    if item.config.getoption("--hypothesis-seed") is None:
        core.global_force_seed = seeds.seed_of(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tell the seed beside every failure."""
    report = yield
    if report.failed:
        report.sections.append(("Seed", seeds.again()))
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> InUnits:
    return InUnits(config, log)
