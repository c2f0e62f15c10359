"""A stored relation as a state machine: Hypothesis finds the shortest way to break it.

The steps are those of the driver in model.py, which does the same to a model of dictionaries; what
it draws, Hypothesis draws. test_relation_model.py takes far longer walks, and cannot shrink them.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.seeds import seeded
from tests.store.model import Driver, compare
from tests.store.test_relation_model import SHAPES, relation_of
from tidelog.store import index

draws = st.randoms(use_true_random=False)


class RelationMachine(RuleBasedStateMachine):
    """Epochs of any steps, and what may happen between them."""

    driver: Driver
    in_epoch = False

    @initialize(shape=st.sampled_from(list(SHAPES)), counted=st.booleans(), shared=st.booleans())
    def start(self, shape: str, counted: bool, shared: bool) -> None:
        values = [list(column[:8]) for column in SHAPES[shape]]
        relation = relation_of(values, counted, shared)
        self.driver = Driver(seeded("replaced before each draw"), relation, values)

    def _draw_from(self, draw: random.Random) -> None:
        self.driver.rng = draw

    # --- within an epoch ---

    @rule(draw=draws)
    def add(self, draw: random.Random) -> None:
        self._draw_from(draw)
        self.in_epoch = True
        self.driver.add()

    @rule(draw=draws)
    def set_marks(self, draw: random.Random) -> None:
        self._draw_from(draw)
        self.in_epoch = True
        self.driver.set_marks()

    @rule(draw=draws)
    def set_counts(self, draw: random.Random) -> None:
        self._draw_from(draw)
        self.in_epoch = True
        self.driver.set_counts()

    @rule(draw=draws)
    def find(self, draw: random.Random) -> None:
        self._draw_from(draw)
        self.driver.find()

    @rule(draw=draws)
    def index(self, draw: random.Random) -> None:
        self._draw_from(draw)
        self.driver.index()

    # --- the end of an epoch, and between epochs ---

    @rule(draw=draws)
    def commit(self, draw: random.Random) -> None:
        self._draw_from(draw)
        self.driver.commit()
        self.in_epoch = False

    @rule()
    def abort(self) -> None:
        self.driver.abort()
        self.in_epoch = False

    @precondition(lambda self: not self.in_epoch)
    @rule(draw=draws)
    def widen(self, draw: random.Random) -> None:
        self._draw_from(draw)
        self.driver.widen()

    @precondition(lambda self: not self.in_epoch)
    @rule(draw=draws)
    def replace(self, draw: random.Random) -> None:
        self._draw_from(draw)
        self.driver.replace()

    @precondition(lambda self: not self.in_epoch)
    @rule(draw=draws)
    def replace_at_commit(self, draw: random.Random) -> None:
        self._draw_from(draw)
        self.driver.replace_at_commit()

    @invariant()
    def equals_its_model(self) -> None:
        if hasattr(self, "driver"):
            compare(self.driver.relation, self.driver.model)


def test_the_relation_is_its_model(monkeypatch: pytest.MonkeyPatch) -> None:
    # Runs merge and the dead are buried all the time, a few rows at each commit.
    monkeypatch.setattr(index, "SMALL", 2)
    monkeypatch.setattr(index, "STEP", 3)
    monkeypatch.setattr(index, "_STEPS_PER_ROW", 2)
    run_state_machine_as_test(
        RelationMachine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
