"""What upserts should give: a dictionary from keys to the newest row, in the obvious way."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

Key = tuple[int, str]
Values = tuple[int, str, float]

PROGRAM = """
.decl item(k: number, v: number, name: symbol, at: number, w: float)
.decl limit(v: number, most: number)
.decl over(k: number, name: symbol)
over(k, name) :- item(k, v, name, _, _), limit(v, most), v + k > most.
.decl busy(v: number, n: number)
busy(v, n) :- limit(v, _), n = count : { item(_, v, _, _, _) }.
"""
"""Rules that shard `item` by a column that is not one of its keys, `k` and `name`."""
KEYS = ("k", "name")


@dataclass(frozen=True)
class Event:
    """A row of the source: a key, a sequence, and the other columns; None deletes the key."""

    key: Key
    at: int
    values: tuple[int, float] | None

    def row(self) -> tuple[int, int, str, int, float] | None:
        """Return the row of the relation."""
        if self.values is None:
            return None
        return (self.key[0], self.values[0], self.key[1], self.at, self.values[1])


@dataclass
class Model:
    """The newest event of each key."""

    with_sequence: bool
    held: dict[Key, Event] = field(default_factory=dict)

    def take(self, event: Event) -> None:
        """Take an event, unless a newer one of its key was seen."""
        known = self.held.get(event.key)
        if self.with_sequence and known is not None and known.at > event.at:
            return
        self.held[event.key] = event

    def rows(self) -> set[tuple[int, int, str, int, float]]:
        """Return the rows of the relation."""
        return {row for event in self.held.values() if (row := event.row()) is not None}


def some_events(rng: Random, count: int) -> list[Event]:
    """Return events whose sequences rise, but not always."""
    found = []
    for number in range(count):
        key = (rng.randrange(4), rng.choice("ab"))
        at = max(0, number - rng.choice((0, 0, 0, 1, 5, count)))
        values = None if rng.random() < 0.25 else (rng.randrange(4), rng.choice((0.5, -0.0, 2.5)))
        found.append(Event(key, at, values))
    return found


def cut(rng: Random, events: list[Event]) -> list[list[Event]]:
    """Return the events in pieces."""
    places = sorted(rng.sample(range(len(events) + 1), min(len(events), rng.randrange(1, 7))))
    ends = [*places, len(events)]
    return [events[a:b] for a, b in zip([0, *ends], ends, strict=False) if b > a]
