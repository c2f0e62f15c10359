"""The kernel and the reference engine after one epoch."""

from __future__ import annotations

from tidelog.engine.kernel import KernelEngine
from tidelog.engine.oracle import ReferenceEngine
from tidelog.engine.protocol import Effects
from tidelog.logic.program import Program


def assert_same_rows(program: Program, kernel: KernelEngine, reference: ReferenceEngine) -> None:
    """Assert that both have the same rows, and that the kernel is sound."""
    for name in program.relations:
        assert kernel.rows(name) == reference.rows(name), name
    kernel._check()


def assert_agree(
    program: Program,
    kernel: KernelEngine,
    reference: ReferenceEngine,
    found: Effects,
    wanted: Effects,
) -> None:
    """Assert that both have the same rows, and have changed the same ones."""
    for name in program.relations:
        assert (name in found.changes) == (name in wanted.changes), name
        if name in found.changes:
            assert found.changes[name].inserted == wanted.changes[name].inserted
            assert found.changes[name].deleted == wanted.changes[name].deleted
    assert_same_rows(program, kernel, reference)
