"""The kernel against the oracle: random programs, random epochs.

After every epoch: contents, exact net changes, and state (levels and counts) equal to that of a
fresh bootstrap on the same facts; an epoch that fails leaves everything as it was.
"""

import pytest

import tidelog
from tests.generators.programs import RandomCase, check_cases, seed_blocks
from tidelog.engine.kernel import KernelEngine
from tidelog.reference import evaluate

CASES = 120


def check(case: RandomCase) -> None:
    program = tidelog.Program.parse(case.program)
    given = {name: set(case.facts.get(name, ())) for name in program.relations}
    try:
        expected = evaluate(program, given)
    except tidelog.DataError:
        with pytest.raises(tidelog.DataError):
            KernelEngine(program, given)
        return
    kernel = KernelEngine(program, given)
    for name in program.relations:
        assert kernel.rows(name) == expected[name], name
    for epoch in case.epochs:
        inserted = {n: set(adds) - set(removes) for n, (adds, removes) in epoch.items()}
        deleted = {n: set(removes) - set(adds) for n, (adds, removes) in epoch.items()}
        new = {
            n: (rows - deleted.get(n, set())) | inserted.get(n, set()) for n, rows in given.items()
        }
        try:
            after = evaluate(program, new)
        except tidelog.DataError:
            with pytest.raises(tidelog.DataError):
                kernel.apply(inserted, deleted)
            for name in program.relations:
                assert kernel.rows(name) == expected[name], f"{name} after a failed epoch"
            kernel._check()
            continue
        effects = kernel.apply(inserted, deleted)
        fresh = KernelEngine(program, new)
        for name in program.relations:
            assert kernel.rows(name) == after[name], name
            change = effects.changes.get(name)
            gained = change.inserted if change else frozenset()
            lost = change.deleted if change else frozenset()
            assert gained == after[name] - expected[name], f"inserted into {name}"
            assert lost == expected[name] - after[name], f"deleted from {name}"
            assert kernel.state(name) == fresh.state(name), f"levels and counts of {name}"
        kernel._check()
        given, expected = new, after


def kept(case: RandomCase) -> bool:
    """Return whether the kernel takes the program; what it refuses is checked below."""
    try:
        KernelEngine(tidelog.Program.parse(case.program), {})
    except tidelog.UsageError as error:
        assert "the kernel cannot keep this aggregate yet" in str(error)
        return False
    except tidelog.DataError:
        return True
    return True


@pytest.mark.parametrize("seeds", seed_blocks(CASES, 10), ids=str)
def test_random_programs(seeds: range) -> None:
    check_cases(seeds, lambda case: check(case) if kept(case) else None)


def test_what_is_refused_is_said() -> None:
    program = tidelog.Program.parse("""
        .decl e(x: number)
        .decl p(x: number)
        p(0).
        p(y) :- p(x), x < 5, n = count : { e(z), z > x }, y = x + n.
    """)
    with pytest.raises(tidelog.UsageError, match="cannot keep this aggregate yet"):
        KernelEngine(program, {})
