"""Sets as trees whose nodes exist once: against frozensets, with every invariant checked."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from tests.kernel.words import EDGES, LEAST, MOST
from tests.seeds import seeded
from tidelog.kernel import sets as kernel
from tidelog.store.sets import SetDictionary

SPANS: dict[str, Callable[[random.Random], int]] = {
    "few": lambda rng: rng.randint(-4, 4),
    "dense": lambda rng: rng.randint(-300, 300),
    "wide": lambda rng: rng.randint(LEAST, MOST),
    "edges": lambda rng: rng.choice(EDGES),
    "powers": lambda rng: rng.choice((-1, 1)) * (1 << rng.randrange(63)),
}


def change(table: SetDictionary, numbers: list[int], changes: list[dict[int, bool]]) -> list[int]:
    """Return the numbers of sets after their changes: element -> whether it comes."""
    which = [w for w, own in enumerate(changes) for _ in own]
    pairs = [pair for own in changes for pair in sorted(own.items())]
    changed = table.changed(
        np.array(numbers, np.int64),
        np.array(which, np.int64),
        np.array([element for element, _ in pairs], np.int64),
        np.array([comes for _, comes in pairs], np.bool_),
    )
    return [int(number) for number in changed]


@pytest.mark.parametrize("span", SPANS)
def test_random_changes(span: str) -> None:
    rng = seeded(f"sets{span}")
    draw, table = SPANS[span], SetDictionary()
    held = [frozenset[int]() for _ in range(4)]
    numbers = [0] * 4
    known: dict[frozenset[int], int] = {frozenset(): 0}
    for _ in range(200):
        changes: list[dict[int, bool]] = []
        for elements in held:
            size = rng.choice((0, 1, 1, 2, 10, 80))
            some = [draw(rng) for _ in range(size)]
            some += rng.sample(sorted(elements), min(len(elements), rng.choice((0, 0, 1, 5))))
            changes.append({element: rng.random() < 0.55 for element in some})
        numbers = change(table, numbers, changes)
        for w, own in enumerate(changes):
            gone = {element for element, comes in own.items() if not comes}
            held[w] = held[w].union(own) - gone
        for elements, number in zip(held, numbers, strict=True):
            assert table.parts_of(number) == sorted(elements)
            assert table.number(elements) == number, "built at once it is another node"
            assert table.find(elements) == number
            assert known.setdefault(elements, number) == number, "equal sets, two numbers"
        assert table.sizes(np.array(numbers)).tolist() == [len(elements) for elements in held]
    table.check()
    assert len(set(known.values())) == len(known), "one number, two sets"


def test_the_way_to_a_set_does_not_matter() -> None:
    rng = seeded("orders")
    elements = [rng.randint(LEAST, MOST) for _ in range(100)]
    found = set()
    for _ in range(5):
        table, number = SetDictionary(), 0
        rng.shuffle(elements)
        for element in elements:
            (number,) = change(table, [number], [{element: True}])
        shapes = table._nodes[number, kernel.META], table.number(elements) == number
        found.add((int(shapes[0]), shapes[1]))
        (number,) = change(table, [number], [dict.fromkeys(elements[1:], False)])
        assert number == table.number(elements[:1])
    assert len(found) == 1 and all(same for _, same in found)


def test_a_lookup_adds_nothing() -> None:
    table = SetDictionary()
    number = table.number([1, 2, 3])
    before = len(table)
    assert table.find([4]) is None and table.find([1, 3]) is None and table.find([]) == 0
    assert table.find([3, 2, 1, 1]) == number
    assert len(table) == before


@pytest.mark.parametrize("size", [100, 10_000, 300_000])
def test_a_change_makes_one_path(size: int) -> None:
    table = SetDictionary()
    number = table.number(range(size))
    assert len(table) == 2 * size  # the empty set, the leaves, and one node less than leaves
    before = len(table)
    (number,) = change(table, [number], [{-1: True}])
    (number,) = change(table, [number], [{size // 2: False}])
    assert len(table) - before <= 2 * (size.bit_length() + 2)
    assert int(table.sizes(np.array([number]))[0]) == size


def test_powers_of_two_are_the_deepest_trees() -> None:
    table = SetDictionary()
    deepest = [LEAST, -1, 0, *(1 << place for place in range(63))]
    number = table.number(deepest)
    for element in deepest:
        (less,) = change(table, [number], [{element: False}])
        assert table.parts_of(less) == sorted(set(deepest) - {element})
        assert change(table, [less], [{element: True}]) == [number]
    table.check()


def break_key(table: SetDictionary) -> None:
    table._nodes[len(table) - 1, kernel.KEY] += 1


def break_size(table: SetDictionary) -> None:
    table._nodes[len(table) - 1, kernel.META] += 1 << kernel.SIZE_SHIFT


def break_place(table: SetDictionary) -> None:
    table._nodes[len(table) - 1, kernel.META] += 1


def swap_children(table: SetDictionary) -> None:
    node = table._nodes[len(table) - 1]
    node[kernel.LEFT], node[kernel.RIGHT] = node[kernel.RIGHT], node[kernel.LEFT]


def copy_node(table: SetDictionary) -> None:
    table._nodes[len(table)] = table._nodes[1]
    table._used[kernel.COUNT] += 1


def lose_slot(table: SetDictionary) -> None:
    table._slots[np.flatnonzero(table._slots)[0]] = 0


@pytest.mark.parametrize(
    "damage", [break_key, break_size, break_place, swap_children, copy_node, lose_slot]
)
def test_the_check_finds(damage: Callable[[SetDictionary], None]) -> None:
    table = SetDictionary()
    table.number([5, -3, 12, 40])
    table.check()
    damage(table)
    with pytest.raises(AssertionError):
        table.check()
