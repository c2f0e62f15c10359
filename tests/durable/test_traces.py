"""Views that are forced to the traces of their joins, on durable databases.

Traces are not saved: each opening records them again, from the rows that were.
"""

from __future__ import annotations

import pytest

from tests.durable.histories import DurableHistory
from tests.generators.multiway_joins import multiway_case
from tests.generators.programs import check_cases
from tests.maintain.comparing import leapfrog_forced
from tests.samples import sample
from tests.seeds import seed_blocks


@pytest.mark.parametrize("seeds", seed_blocks(sample(24, 600), 12, offset=935_000))
def test_random_histories(seeds: range) -> None:
    history = DurableHistory()
    check_cases(seeds, history.check, lambda seed: leapfrog_forced(multiway_case(seed)))
    print(dict(history.seen))
    seen = history.seen
    assert seen["epochs"] > 2 * len(seeds)
    assert seen["traces"] > len(seeds) // 2
