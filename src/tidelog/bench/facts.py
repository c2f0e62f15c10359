"""Facts for measurements: generated, or read from the folder that `--data` names."""

from __future__ import annotations

import gzip
import random
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidelog.logic.program import Program
    from tidelog.values.types import Row

Pair = tuple[int, int]


def random_graph(nodes: int, edges: int, seed: int) -> list[Pair]:
    """Return distinct random edges, sorted; the same on every machine."""
    rng = random.Random(seed)
    return sorted({(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(edges)})


def read_pairs(path: Path) -> list[Pair]:
    """Return the pairs of numbers of a gzipped, tab-separated file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [(int(x), int(y)) for x, y in (line.split("\t") for line in file)]


def read_packed(folder: Path, program: str) -> tuple[Program, Mapping[str, list[Row]]]:
    """Return a program and its facts from a folder, which has the facts in `facts.zip`."""
    from tidelog.io.facts import facts_path, read_facts
    from tidelog.logic.program import DirectiveKind, Program

    checked = Program.load(folder / program)
    facts: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="tidelog-facts-") as unpacked:
        with zipfile.ZipFile(folder / "facts.zip") as archive:
            archive.extractall(unpacked)
        for directive in checked.directives_of(DirectiveKind.INPUT):
            relation = checked.relations[directive.relation]
            path = facts_path(directive, unpacked)
            rows = read_facts(path, relation, checked.records, directive.parameters)
            facts.setdefault(directive.relation, []).extend(rows)
    return checked, facts
