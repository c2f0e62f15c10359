"""A join tree as text: nodes with their variables, predicates on edges, the connex part starred.

* {a, t}
├── * small(a, t)
└── * large(a, u)   t < u
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.plan.theta.binary import binary
from tidelog.plan.theta.join_tree import JoinShape, TreeNode


def drawn(shape: JoinShape) -> list[str]:
    """Return what the analysis says about a query, line by line."""
    if shape.tree is None:
        texts = ", ".join(p.text for p in shape.cyclic_predicates)
        because = f" through {texts}" if texts else " through its equal variables"
        return [f"cyclic{because}: there is no join tree"]
    if shape.is_free_connex:
        title = "acyclic, free-connex; * marks the part that has the output"
    else:
        more = ", ".join(sorted(shape.frontier - shape.query.output))
        title = f"acyclic, not free-connex: the output would need {more}, too; * marks that part"
    return [title, *_lines(binary(shape.tree), shape)]


def _lines(node: TreeNode, shape: JoinShape) -> Iterator[str]:
    yield _label(node, shape)
    for place, edge in enumerate(node.edges):
        is_last = place == len(node.edges) - 1
        texts = [p.text for p in sorted(edge.predicates, key=lambda p: p.number)]
        first, *rest = _lines(edge.child, shape)
        yield f"{'└── ' if is_last else '├── '}{first}" + (f"   {', '.join(texts)}" * bool(texts))
        yield from (f"{'    ' if is_last else '│   '}{line}" for line in rest)


def _label(node: TreeNode, shape: JoinShape) -> str:
    mark = "* " if node.is_connex else ""
    if node.atom is not None:
        return mark + shape.query.names[node.atom]
    names = (name for name in sorted(node.variables) if not name.startswith("_"))
    return f"{mark}{{{', '.join(names)}}}"
