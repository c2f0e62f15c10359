"""A join tree as text: nodes with their variables, predicates on edges, the connex part starred.

* {a, t}
├── * small(a, t)
└── * large(a, u)   t < u
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.plan.theta.acyclic_part import AcyclicPart, largest_acyclic_part
from tidelog.plan.theta.binary import binary
from tidelog.plan.theta.join_tree import JoinShape, TreeEdge, TreeNode
from tidelog.plan.theta.query import ThetaQuery

_MARKED = "the part that has the output"


def drawn(shape: JoinShape) -> list[str]:
    """Return what the analysis says about a query, line by line."""
    part = largest_acyclic_part(shape.query)
    title = described(shape, part)
    if part is None:
        return [title]
    assert part.shape.tree is not None
    return [f"{title}; * marks {_MARKED}", *_lines(binary(part.shape.tree), part.shape)]


def described(shape: JoinShape, part: AcyclicPart | None) -> str:
    """Return what the analysis says about a query; `part` is what its tree is made of."""
    if shape.is_free_connex:
        return "acyclic, free-connex"
    if shape.is_acyclic:
        more = ", ".join(sorted(shape.frontier - shape.query.output))
        return f"acyclic, not free-connex: the tree has to enumerate {more}, too"
    texts = ", ".join(p.text for p in shape.cyclic_predicates)
    because = f"cyclic through {texts}" if texts else "cyclic through its equal variables"
    if part is None:
        return f"{because}: there is no join tree"
    filters = ", ".join(p.text for p in part.filters)
    return f"{because}: its tree is without {filters}, by which its rows are filtered"


def _lines(node: TreeNode, shape: JoinShape) -> Iterator[str]:
    yield f"{'* ' * node.is_connex}{label(node, shape.query)}"
    for place, edge in enumerate(node.edges):
        is_last = place == len(node.edges) - 1
        texts = ", ".join(edge_texts(edge))
        first, *rest = _lines(edge.child, shape)
        yield f"{'└── ' if is_last else '├── '}{first}" + (f"   {texts}" * bool(texts))
        yield from (f"{'    ' if is_last else '│   '}{line}" for line in rest)


def edge_texts(edge: TreeEdge) -> list[str]:
    """Return the predicates on an edge as text, in the order of the query."""
    return [p.text for p in sorted(edge.predicates, key=lambda p: p.number)]


def label(node: TreeNode, query: ThetaQuery) -> str:
    """Return an atom, or the variables of an inner node; not those that nobody reads."""
    if node.atom is not None:
        return query.names[node.atom]
    names = (name for name in sorted(node.variables) if not name.startswith("_"))
    return f"{{{', '.join(names)}}}"
