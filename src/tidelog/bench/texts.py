"""Numbers for people: three digits that count, in the unit that fits."""

from __future__ import annotations


def seconds_text(seconds: float) -> str:
    """Return a time in the unit that fits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{number_text(seconds / size)} {unit}"
    return f"{seconds * 1e6:.2f} µs"


def bytes_text(size: int) -> str:
    """Return a size of memory."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def ratio_text(ratio: float) -> str:
    """Return how many times."""
    return f"{number_text(ratio)}x"


def number_text(number: float) -> str:
    """Return a number with three digits that count."""
    if number >= 100:
        return f"{number:,.0f}"
    if number >= 10:
        return f"{number:.1f}".removesuffix(".0")
    return f"{number:.3g}"
