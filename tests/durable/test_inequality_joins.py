"""Inequality joins on durable databases: what is not stored survives, and readers see it."""

from __future__ import annotations

import pytest

from tests.durable.histories import DurableHistory
from tests.generators.inequality_joins import inequality_case
from tests.generators.programs import check_cases
from tests.samples import sample
from tests.seeds import seed_blocks


@pytest.mark.parametrize("seeds", seed_blocks(sample(24, 600), 12, offset=930_000))
def test_random_histories(seeds: range) -> None:
    history = DurableHistory()
    check_cases(seeds, history.check, inequality_case)
    print(dict(history.seen))
