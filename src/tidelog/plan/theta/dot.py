"""Join trees as Graphviz DOT text: atoms are boxes, the connex part is filled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from tidelog.plan.theta.picture import PictureNode, TreePicture


def dot(pictures: Sequence[TreePicture]) -> str:
    """Return the trees of some rules as one graph, each in a frame of its own."""
    lines = [
        "graph join_trees {",
        '  node [fontname="monospace", fontsize=12, shape=ellipse];',
        '  edge [fontname="monospace", fontsize=11];',
    ]
    numbers = count()
    for place, picture in enumerate(pictures):
        title = f"{picture.rule}\n{picture.verdict}"
        lines.append(f"  subgraph cluster_{place} {{")
        lines.append(f'    label={quoted(title)}; fontname="sans-serif"; fontsize=12;')
        if picture.root is not None:
            lines += [f"    {line}" for line in _lines(picture.root, next(numbers), numbers)]
        lines.append("  }")
    return "\n".join([*lines, "}"])


def _lines(node: PictureNode, number: int, numbers: Iterator[int]) -> Iterator[str]:
    options = [f"label={quoted(node.text)}"]
    options += ["shape=box"] if node.is_atom else []
    options += ['style=filled, fillcolor="#ddf4ff"'] if node.is_connex else []
    yield f"n{number} [{', '.join(options)}];"
    for child in node.children:
        below = next(numbers)
        label = f" [label={quoted(child.edge_text)}]" if child.edge_text else ""
        yield from _lines(child, below, numbers)
        yield f"n{number} -- n{below}{label};"


def quoted(text: str) -> str:
    """Return text as a string of DOT, in double quotes."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
