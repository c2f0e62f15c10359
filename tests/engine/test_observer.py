"""The observer of epochs is called at their steps, and can abort them."""

from collections.abc import Callable

import pytest

import tidelog
from tidelog.engine.kernel import KernelEngine
from tidelog.engine.protocol import NoObserver

PROGRAM = tidelog.Program.parse("""
.decl p(x: number)
.decl inverse(x: number)
.decl square(x: number)
inverse(100 / x) :- p(x).
square(x * x) :- p(x).
""")


class Steps(NoObserver):
    """Notes the steps, and what the engine shows at each of them."""

    def __init__(self, engine: KernelEngine) -> None:
        self.engine, self.seen = engine, list[str]()
        self.fail: Callable[[str], None] = lambda step: None

    def given(self) -> None:
        self._note("given", len(self.engine.state.given_changes()))

    def computed(self) -> None:
        self._note("computed", len(self.engine.state.view_changes()))

    def undone(self) -> None:
        self._note("undone", len(self.engine.state.given_changes()))

    def _note(self, step: str, changes: int) -> None:
        self.seen.append(f"{step} {changes}")
        self.fail(step)


@pytest.fixture
def steps() -> Steps:
    engine = KernelEngine(PROGRAM, {"p": [(1,)]})
    engine.observer = found = Steps(engine)
    return found


def test_an_epoch_is_given_and_computed(steps: Steps) -> None:
    steps.engine.apply({"p": {(2,)}}, {})
    assert steps.seen == ["given 1", "computed 2"]


def test_given_rows_are_announced_once(steps: Steps) -> None:
    steps.engine.apply({"p": {(70_000,)}}, {})  # its square widens a domain: computed twice
    assert steps.seen == ["given 1", "computed 2"]
    assert steps.engine.rows("square") == {(1,), (4_900_000_000,)}


def test_an_epoch_that_fails_is_undone(steps: Steps) -> None:
    with pytest.raises(tidelog.EvaluationError):
        steps.engine.apply({"p": {(0,)}}, {})
    assert steps.seen == ["given 1", "undone 0"]


@pytest.mark.parametrize("step", ["given", "computed"])
def test_an_observer_that_raises_aborts_the_epoch(steps: Steps, step: str) -> None:
    def fail(at: str) -> None:
        if at == step:
            raise OSError("the disk is full")

    steps.fail = fail
    with pytest.raises(OSError, match="the disk is full"):
        steps.engine.apply({"p": {(2,)}}, {})
    assert steps.seen[-2:][0].startswith(step)
    assert steps.seen[-1] == "undone 0"
    assert steps.engine.rows("p") == {(1,)}
    assert steps.engine.rows("square") == {(1,)}
    steps.engine.check()


def test_ordinals_are_observed_as_rows_are(steps: Steps) -> None:
    engine = steps.engine
    encode = engine.catalog.encode
    engine.apply_ordinals({"p": (encode("p", [(2,)]), encode("p", [(1,)]))})
    assert steps.seen == ["given 1", "computed 2"]
    assert engine.rows("p") == {(2,)}
