"""`tidelog explain --dot` and `--svg`: pictures of join trees, and of the strata of a program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.errors import UsageError

if TYPE_CHECKING:
    from tidelog.logic.program import Program
    from tidelog.plan.theta.picture import TreePicture


def draw_program(path: Path, view: str | None, *, dot: bool, svg: Path | None) -> None:
    """Print a graph of the program at `path`, or of the joins of a view; write the picture."""
    from tidelog.logic.program import Program

    program = Program.load(path)
    if view is None:
        if svg is not None:
            raise UsageError("`--svg` draws the joins of one view\n  help: name the view")
        from tidelog.database.strata_dot import strata_dot

        print(strata_dot(program))
        return
    trees = _trees(program, view)
    if dot:
        from tidelog.plan.theta.dot import dot as as_dot

        print(as_dot(trees))
    if svg is not None:
        from tidelog.io.atomic import replace_text
        from tidelog.plan.theta.svg import svg as as_svg

        replace_text(svg, as_svg(trees))


def _trees(program: Program, view: str) -> list[TreePicture]:
    from tidelog.database.explain_kernel import details_without_data

    program.relation(view)
    trees = details_without_data(program).join_trees(view)
    if not trees:
        raise UsageError(
            f"no rule of `{view}` is a join, so there is no join tree"
            "\n  help: a join has two positive atoms or more, and no negation"
        )
    return trees
