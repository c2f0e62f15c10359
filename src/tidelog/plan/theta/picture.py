"""What a picture of a join tree shows: the rule, the verdict, and the tree that is drawn.

`dot` writes it for Graphviz (dot.py), `svg` as a picture that needs no other program (svg.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.plan.theta.acyclic_part import largest_acyclic_part
from tidelog.plan.theta.binary import binary
from tidelog.plan.theta.drawing import described, edge_texts, label
from tidelog.plan.theta.join_tree import TreeNode, analyse_joins
from tidelog.plan.theta.query import ThetaQuery


@dataclass(frozen=True)
class PictureNode:
    """A node as it is drawn, with its children."""

    text: str
    is_atom: bool
    is_connex: bool
    edge_text: str
    """The predicates between the node and its parent."""
    children: tuple[PictureNode, ...]


@dataclass(frozen=True)
class TreePicture:
    """The join tree of one rule."""

    rule: str
    verdict: str
    root: PictureNode | None
    """None if there is no tree."""


def tree_picture(rule: str, query: ThetaQuery) -> TreePicture:
    """Return what the picture of a rule shows."""
    shape, part = analyse_joins(query), largest_acyclic_part(query)
    root = None
    if part is not None:
        assert part.shape.tree is not None
        root = _drawn(binary(part.shape.tree), part.shape.query, "")
    return TreePicture(rule, described(shape, part), root)


def _drawn(node: TreeNode, query: ThetaQuery, edge_text: str) -> PictureNode:
    children = tuple(_drawn(edge.child, query, ", ".join(edge_texts(edge))) for edge in node.edges)
    is_atom = node.atom is not None
    return PictureNode(label(node, query), is_atom, node.is_connex, edge_text, children)
