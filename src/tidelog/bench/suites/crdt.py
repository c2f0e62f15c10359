"""A shared text editor as a replicated list: negation, and recursion along a long chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.bench.facts import read_packed
from tidelog.bench.model import OURS, BenchCase, Figure, Request, Suite, Target
from tidelog.bench.ours import all_facts, bootstrap, bootstrap_figure, delete_and_insert

if TYPE_CHECKING:
    from tidelog.logic.program import Program
    from tidelog.values.types import Row

FILES = ("crdt/crdt.dl", "crdt/facts.zip")
VARIANT = "variant"

# The start of the relation that skips removed elements, as the program has it and as the variant
# in its comment does: from every element, not only from the visible ones.
_FROM_VISIBLE = "skip_blank(c, n, c2, n2) :- has_value(c, n), next_elem(c, n, c2, n2)."
_FROM_ALL = "skip_blank(c, n, c2, n2) :- next_elem(c, n, c2, n2)."


def read_crdt(folder: Path, full: bool) -> tuple[Program, Mapping[str, list[Row]]]:
    """Return the program and its facts; for a quick run the first twentieth of the editing."""
    program, facts = read_packed(folder, "crdt.dl")
    if full:
        return program, facts
    inserts = facts["insert"][: len(facts["insert"]) // 20]
    there = {row[:2] for row in inserts}
    return program, {
        "insert": inserts,
        "remove": [row for row in facts["remove"] if row in there],
    }


def _measure(request: Request) -> Iterator[Figure]:
    program, facts = read_crdt(request.folder("crdt"), request.is_full)
    database, whole = bootstrap(program, facts)
    yield bootstrap_figure(database, whole)
    yield Figure("result", rows=len(database.view("result")))
    rounds = 20 if request.is_full else 3
    changes = delete_and_insert(database, all_facts(facts), 10, rounds, seed=21)
    yield from changes.figures("ten facts", whole)
    # One key pressed: what an editor does, where random facts cut the chain of all elements.
    keys = [("insert", row) for row in facts["insert"][-50:]]
    presses = delete_and_insert(database, keys, 1, rounds, seed=22)
    yield from presses.figures("one of the last 50 insertions", whole)


def _measure_variant(request: Request) -> Iterator[Figure]:
    from tidelog.logic.program import Program

    folder = request.folder("crdt")
    _, facts = read_crdt(folder, request.is_full)
    text = (folder / "crdt.dl").read_text(encoding="utf-8")
    assert _FROM_VISIBLE in text, "the program is not the one that the variant was made for"
    database, seconds = bootstrap(Program.parse(text.replace(_FROM_VISIBLE, _FROM_ALL)), facts)
    yield bootstrap_figure(database, seconds)
    yield Figure("skip_blank", rows=len(database.view("skip_blank")))


SUITE = Suite(
    "crdt",
    "a person's editing of a text as a replicated list (needs facts): bootstrap and changes",
    (
        BenchCase(OURS, _measure, files=FILES),
        BenchCase(OURS, _measure_variant, VARIANT, files=FILES, full_only=True),
    ),
    (
        Target("bootstrap", 5.0, " s", lambda found: found.seconds("bootstrap")),
        Target(
            "peak memory of the variant",
            6.0,
            " GB",
            lambda found: found.figure("bootstrap", VARIANT).peak_bytes / 1e9,
        ),
    ),
)
