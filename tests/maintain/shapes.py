"""What the random programs for the kernel look like."""

from __future__ import annotations

from dataclasses import replace

from tests.generators.programs import RandomCase, Shape, random_case

EPOCHS = 10
LONG = 120

_BASE = Shape(
    relations=(2, 4),
    rules=(1, 2),
    facts=(0, 6),
    epochs=(EPOCHS, EPOCHS),
    aggregates=0.12,
    bursts=0.15,
    flips=0.2,
    widening=0.4,
)
RECURSIVE = replace(
    _BASE, linear=1.0, nonlinear=0.6, mutual=0.7, aggregates=0.02, given_and_derived=0.5,
)  # fmt: skip
"""Little but recursion."""

SHAPES = (
    replace(_BASE, relations=(2, 5), wide=0.3, aggregates=0.25),
    RECURSIVE,
    replace(
        _BASE,
        typed=1.0,
        extremes=0.8,
        strings=0.4,
        floats=0.5,
        functional=0.08,
        linear=0.4,
        aggregates=0.25,
    ),
    replace(
        _BASE,
        relations=(2, 3),
        wide=1.0,
        wide_arity=0.4,
        wide_columns=(8, 12),
        atoms=(1, 2),
        nonlinear=0.1,
        same_rows=0.03,
    ),
    replace(_BASE, errors=0.6, functional=0.25, typed=0.4, wide=0.3),
)


def kernel_case(seed: int) -> RandomCase:
    """Return the random case of a seed: the seed also tells the shape."""
    return random_case(seed, SHAPES[seed % len(SHAPES)])


def long_history(number: int) -> RandomCase:
    """Return a case with many epochs on one program."""
    few = replace(SHAPES[number % len(SHAPES)], epochs=(LONG, LONG), relations=(2, 3))
    return random_case(number, few)
