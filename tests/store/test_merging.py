"""Merges in bounded steps: nothing is lost on the way, and no commit does more than its share."""

from __future__ import annotations

import numpy as np
import pytest

from tests.samples import until
from tests.seeds import seeded, seeded_arrays
from tests.store.model import Driver
from tests.store.test_relation_model import SHAPES, relation_of, run_steps
from tidelog.kernel.descriptors import SIZE
from tidelog.kernel.marks import DEAD_NOW
from tidelog.store import index, merging
from tidelog.store.domain import Domain
from tidelog.store.relation import StoredRelation
from tidelog.store.run import Run


@pytest.mark.parametrize("step", [1, 7, 40])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_random_epochs_while_runs_are_merged(
    shape: str, counted: bool, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "SMALL", 2)
    monkeypatch.setattr(index, "STEP", step)
    monkeypatch.setattr(index, "_STEPS_PER_ROW", 0)
    under_way = []
    finish = merging.Merge._finish

    def noted(merge: merging.Merge) -> Run:
        under_way.append(bool(merge._touched))
        return finish(merge)

    monkeypatch.setattr(merging.Merge, "_finish", noted)
    rng = seeded(f"merging{shape}{counted}{step}")
    values = [list(column) for column in SHAPES[shape]]
    for _ in until(lambda: any(under_way), least=1, most=10):
        relation = relation_of(values, counted, shared=False)
        run_steps(rng, Driver(rng, relation, values), 500)
    assert any(under_way), "no row changed while it was merged"


def test_small_runs_are_merged_after_a_merge_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel then read runs that were not there any more, and wrote beyond its arrays."""
    monkeypatch.setattr(index, "SMALL", 2)
    monkeypatch.setattr(index, "STEP", 1)
    monkeypatch.setattr(index, "_STEPS_PER_ROW", 0)
    seen = []
    merge_few = index.Index._merge_few

    def noted(self: index.Index) -> None:
        found = [run.size for run in self.all_runs()]
        seen.append(self.descriptors()[:, SIZE].tolist() == found)
        merge_few(self)

    monkeypatch.setattr(index.Index, "_merge_few", noted)
    values = [list(column) for column in SHAPES["two words"]]
    for number in range(6):
        rng = seeded(f"merge few {number}")
        run_steps(rng, Driver(rng, relation_of(values, True, shared=False), values), 500)
    assert seen
    assert all(seen)


def test_a_commit_copies_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "STEP", 100)
    monkeypatch.setattr(index, "SMALL", 16)
    copied = [0]
    copy = merging.Merge._copy

    def counting(merge: merging.Merge, stop: int) -> None:
        before = merge._seen
        copy(merge, stop)
        copied[-1] += merge._seen - before

    monkeypatch.setattr(merging.Merge, "_copy", counting)
    domain = Domain()
    domain.widen(0, 1 << 20)
    relation = StoredRelation("r", [domain], counted=True)
    order = seeded_arrays("bounded steps").permutation(20_000)
    for start in range(0, len(order), 4):
        rows = np.sort(order[start : start + 4])[None, :].astype(np.int64)
        relation.add(rows, None, np.ones(4, np.int64))
        relation.commit()
        copied.append(0)
    relation.check()
    assert len(relation) == 20_000
    # A step for each of a few merges under way, and what is small enough for one go.
    assert max(copied) <= 4 * (100 + index._STEPS_PER_ROW * 4)
    assert max(len(run) for run in relation.primary.runs) > 10_000, "nothing was merged"


def test_rows_that_die_while_they_are_merged_stay_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "STEP", 10)
    monkeypatch.setattr(index, "_STEPS_PER_ROW", 0)
    domain = Domain()
    domain.widen(0, 1 << 20)
    relation = StoredRelation("r", [domain], counted=True)
    rows = np.arange(0, 4000, 2, dtype=np.int64)[None, :]
    relation.replace(rows, None, np.ones(2000, np.int64))
    odd = np.arange(1, 1000, 2, dtype=np.int64)[None, :]
    relation.add(odd, None, np.ones(500, np.int64))
    relation.commit()
    assert relation.primary.merges
    gone = np.array([[0, 1, 998, 3998]], np.int64)  # copied already, and still to be copied
    relation.set_marks(gone, np.full(4, DEAD_NOW, np.int32))
    relation.commit()
    for under_way in list(relation.primary.merges):
        while under_way in relation.primary.merges:
            relation.primary._advance(under_way, 10)
    relation.check()
    assert len(relation) == 2496
    assert not relation.find(gone).present.any()
    assert len(relation.primary.runs) == 1


def test_runs_whose_rows_are_all_dead_leave_no_empty_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two dead runs of similar size are merged with each other, behind a small one that lives."""
    monkeypatch.setattr(index, "SMALL", 2)
    domain = Domain()
    domain.widen(0, 1 << 20)
    relation = StoredRelation("r", [domain])
    rows = np.arange(20, dtype=np.int64)[None, :]
    relation.replace_runs([Run(rows[:, :10]), Run(rows[:, 10:19]), Run(rows[:, 19:])])
    relation.remove(rows[:, :19].copy())
    relation.commit()
    assert [len(run) for run in relation.primary.runs] == [1]
