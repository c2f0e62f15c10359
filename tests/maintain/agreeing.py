"""The kernel and the reference engine after one epoch."""

from __future__ import annotations

from tidelog.engine.kernel import KernelEngine
from tidelog.engine.protocol import Effects
from tidelog.engine.reference_engine import ReferenceEngine
from tidelog.logic.program import Program


def assert_same_rows(program: Program, kernel: KernelEngine, reference: ReferenceEngine) -> None:
    """Assert that both have the same rows, and that the kernel is sound."""
    for name in program.relations:
        assert kernel.rows(name) == reference.rows(name), name
    kernel.check()


def assert_agree(
    program: Program,
    kernel: KernelEngine,
    reference: ReferenceEngine,
    found: Effects,
    wanted: Effects,
) -> None:
    """Assert that both have the same rows, and have changed the same ones."""
    assert_same_changes(program, found, wanted)
    assert_same_rows(program, kernel, reference)


def assert_same_changes(program: Program, found: Effects, wanted: Effects) -> None:
    """Assert that both have changed the same rows."""
    for name in program.relations:
        assert (name in found.changes) == (name in wanted.changes), name
        if name in found.changes:
            assert found.changes[name].inserted == wanted.changes[name].inserted
            assert found.changes[name].deleted == wanted.changes[name].deleted
