"""Which order of its columns serves an atom of a plan.

A plan uses the columns of an atom in groups, one step after the other: columns with known values at
once, a variable by itself, what is left at the end. Within a group any order will do, so often an
order that exists serves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Groups = tuple[tuple[int, ...], ...]
Order = tuple[int, ...]


def fitting(groups: Groups, orders: Iterable[Order]) -> Order | None:
    """Return the first of the orders that has the columns group by group, or None."""
    for order in orders:
        at = 0
        for group in groups:
            if set(order[at : at + len(group)]) != set(group):
                break
            at += len(group)
        else:
            return order
    return None


def any_fitting(groups: Groups) -> Order:
    """Return an order that has the columns group by group."""
    return tuple(column for group in groups for column in sorted(group))


def in_order(columns: Sequence[int], order: Order) -> tuple[int, ...]:
    """Return the columns as they come in `order`."""
    return tuple(sorted(columns, key=order.index))
