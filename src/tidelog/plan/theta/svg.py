"""Join trees as an SVG picture. No other program is needed to make it.

The layout is that of a tidy tree: a parent is centred above its children, and no two subtrees
overlap. Widths of texts are estimated, as characters of one width. The connex part, which has the
output, lies on a shaded area; predicates are on their edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from xml.sax.saxutils import escape

from tidelog.plan.theta.picture import PictureNode, TreePicture

_CHARACTER = 8.0  # the width of a character of 13 pixels, in a font of one width
_BOX, _LEVEL, _GAP, _MARGIN = 30.0, 84.0, 36.0, 24.0
_FONT = "ui-monospace, 'DejaVu Sans Mono', monospace"
_TITLE_WIDTH, _LINE = 96, 18.0
_STYLE = """
    .page { fill: #ffffff; }
    .connex { fill: #ddf4ff; stroke: #ddf4ff; }
    .box { fill: #ffffff; stroke: #57606a; stroke-width: 1.3; }
    .node { fill: #ffffff; stroke: #0969da; stroke-width: 1.3; }
    .line { stroke: #57606a; stroke-width: 1.3; }
    .rule { fill: #1f2328; font-size: 13px; }
    .verdict { fill: #57606a; font-size: 13px; }
    .text { fill: #1f2328; font-size: 13px; text-anchor: middle; }
    .predicate { fill: #953800; font-size: 13px; text-anchor: middle; }
    .tag { fill: #ffffff; }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117; }
      .connex { fill: #0c2d4d; stroke: #0c2d4d; }
      .box { fill: #161b22; stroke: #9ea7b3; }
      .node { fill: #161b22; stroke: #58a6ff; }
      .line { stroke: #9ea7b3; }
      .rule, .text { fill: #f0f6fc; }
      .verdict { fill: #9ea7b3; }
      .predicate { fill: #ffa657; }
      .tag { fill: #0d1117; }
    }
"""


@dataclass(frozen=True)
class _Placed:
    """A node with the place of its centre."""

    node: PictureNode
    x: float
    y: float
    children: tuple[_Placed, ...]

    @property
    def width(self) -> float:
        """The width of its box."""
        return _text_width(self.node.text) + 22

    def nodes(self) -> Iterator[_Placed]:
        """Yield this node and all below it."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def edges(self) -> Iterator[tuple[_Placed, _Placed]]:
        """Yield all pairs of a parent and a child."""
        for child in self.children:
            yield self, child
            yield from child.edges()


class Drawing:
    """A picture of titles and trees, one below the other."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._parts: list[str] = []
        self._top, self._width = _MARGIN, 0.0

    def titles(self, rule: str, verdict: str) -> None:
        """Add lines of text."""
        titles = [(line, "rule") for line in wrap(rule, _TITLE_WIDTH)]
        titles += [(line, "verdict") for line in wrap(verdict, _TITLE_WIDTH)]
        for line, kind in titles:
            self._top += _LINE
            self._parts.append(_text(line, kind, _MARGIN, self._top))
            self._width = max(self._width, _text_width(line))

    def tree(self, node: PictureNode) -> None:
        """Add a tree."""
        root = _placed(node, _MARGIN, self._top + _LINE + _BOX)
        self._parts += _tree(root)
        self._top = max(placed.y for placed in root.nodes()) + _BOX
        self._width = max(self._width, _subtree_width(node))

    def gap(self) -> None:
        """Leave room below a tree."""
        self._top += _MARGIN

    def legend(self, text: str) -> None:
        """Say what lies on a shaded area."""
        self._parts += [
            f'<rect class="connex" x="{_MARGIN:.0f}" y="{self._top - 2:.0f}" width="22" height="14"'
            ' rx="4"/>',
            _text(text, "verdict", _MARGIN + 30, self._top + 10),
        ]
        self._width = max(self._width, 30 + _text_width(text))
        self._top += _LINE

    def svg(self) -> str:
        """Return the text of an SVG file."""
        w, h = f"{self._width + 2 * _MARGIN:.0f}", f"{self._top + _MARGIN:.0f}"
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}"'
                f' height="{h}" role="img" font-family="{_FONT}">',
                f"  <title>{escape(self._name)}</title>",
                f"  <style>{_STYLE}  </style>",
                f'  <rect class="page" width="{w}" height="{h}"/>',
                *(f"  {part}" for part in self._parts),
                "</svg>",
                "",
            ]
        )


def svg(pictures: Sequence[TreePicture]) -> str:
    """Return the trees of some rules, one below the other, as the text of an SVG file."""
    drawing = Drawing("Join trees: " + "; ".join(picture.rule for picture in pictures))
    for picture in pictures:
        drawing.titles(picture.rule, picture.verdict)
        if picture.root is not None:
            drawing.tree(picture.root)
        drawing.gap()
    if any(picture.root is not None and picture.root.is_connex for picture in pictures):
        drawing.legend("the nodes that have the output")
    return drawing.svg()


def _subtree_width(node: PictureNode) -> float:
    """Return the width of a node with its predicates, or that of all below it."""
    own = max(_text_width(node.text) + 22, _text_width(node.edge_text) + 12)
    below = sum(map(_subtree_width, node.children)) + _GAP * (len(node.children) - 1)
    return max(own, below)


def _placed(node: PictureNode, left: float, y: float) -> _Placed:
    """Return a tree with its places; nothing of it is left of `left`."""
    below = sum(map(_subtree_width, node.children)) + _GAP * (len(node.children) - 1)
    at = left + max(0.0, (_subtree_width(node) - below) / 2)
    children = []
    for child in node.children:
        children.append(_placed(child, at, y + _LEVEL))
        at += _subtree_width(child) + _GAP
    x = (children[0].x + children[-1].x) / 2 if children else left + _subtree_width(node) / 2
    return _Placed(node, x, y, tuple(children))


def _tree(root: _Placed) -> Iterator[str]:
    """Yield what a tree is drawn of, from back to front."""
    for parent, child in root.edges():
        if parent.node.is_connex and child.node.is_connex:
            yield _line("connex", parent, child, ' stroke-width="44" stroke-linecap="round"')
    for placed in root.nodes():
        if placed.node.is_connex:
            yield _rect("connex", placed, 12)
    for parent, child in root.edges():
        yield _line("line", parent, child)
    for placed in root.nodes():
        yield _rect("box" if placed.node.is_atom else "node", placed, 0)
        yield _text(placed.node.text, "text", placed.x, placed.y + 4.5)
    for parent, child in root.edges():
        if child.node.edge_text:
            # Nearer to the child than to the parent: there edges are further apart.
            x, y = (0.3 * parent.x + 0.7 * child.x), (0.42 * parent.y + 0.58 * child.y)
            width = _text_width(child.node.edge_text) + 8
            yield (
                f'<rect class="tag" x="{x - width / 2:.1f}" y="{y - 9:.1f}" width="{width:.1f}"'
                ' height="18" rx="4"/>'
            )
            yield _text(child.node.edge_text, "predicate", x, y + 4.5)


def _line(kind: str, a: _Placed, b: _Placed, more: str = "") -> str:
    return (
        f'<line class="{kind}" x1="{a.x:.1f}" y1="{a.y:.1f}" x2="{b.x:.1f}" y2="{b.y:.1f}"{more}/>'
    )


def _rect(kind: str, placed: _Placed, more: float) -> str:
    width, height = placed.width + 2 * more, _BOX + 2 * more
    radius = 4 if placed.node.is_atom and not more else height / 2
    return (
        f'<rect class="{kind}" x="{placed.x - width / 2:.1f}" y="{placed.y - height / 2:.1f}"'
        f' width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}"/>'
    )


def _text(text: str, kind: str, x: float, y: float) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def _text_width(text: str) -> float:
    return _CHARACTER * len(text)
