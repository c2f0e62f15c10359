"""Golden fixtures of plan/: programs, and what they are planned as.

A file in `fixtures/` has one case after the other:

    # title: an open negation asks for the absence of a projection
    # option: value
    .decl ...
    ----
    the plan, as text

`python -m tests.plan.golden` writes the plans anew; read the difference before you keep it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.plan.plan_text import lowered_text, order_text
from tidelog.logic.program import Program

FOLDER = Path(__file__).resolve().parent / "fixtures"
HEAD = re.compile(r"# (\w+): (.*)\n")
BAR = "----\n"


@dataclass(frozen=True)
class Fixture:
    """One case of a file."""

    file: str
    title: str
    options: Mapping[str, str]
    written: str
    """The program with the lines above it, as they stand in the file."""
    program: str
    expected: str

    def plan(self) -> str:
        """Return what the program is planned as now."""
        program = Program.parse(self.program, f"{self.title}.dl")
        if self.file == "order":
            return order_text(program, self.options) + "\n"
        return lowered_text(program) + "\n"


def read(path: Path) -> Iterator[Fixture]:
    """Yield the cases of a file."""
    for text in re.split(r"\n(?=# title: )", path.read_text(encoding="utf-8")):
        written, _, expected = text.partition(BAR)
        options, at = {}, 0
        while found := HEAD.match(written, at):
            options[found[1]] = found[2]
            at = found.end()
        yield Fixture(path.stem, options.pop("title"), options, written, written[at:], expected)


def write(path: Path) -> None:
    """Write the plans of a file anew."""
    cases = [f"{case.written}{BAR}{case.plan()}" for case in read(path)]
    path.write_text("\n".join(cases), encoding="utf-8")


FIXTURES = [fixture for path in sorted(FOLDER.glob("*.txt")) for fixture in read(path)]

if __name__ == "__main__":
    for file in sorted(FOLDER.glob("*.txt")):
        write(file)
