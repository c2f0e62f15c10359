"""Binary trees: nodes with more than two children become chains (section 3, figure 5).

    {x}                        {x}
    ├── r(x, y)                ├── {x}
    ├── s(x, z)      becomes   │   ├── r(x, y)
    └── t(x, u)                │   └── s(x, z)
                               └── t(x, u)

Every node of the chain has the variables of the old one. The guard stays at its end, so that every
node has a guard. The connex set stays sibling-closed: children of a node are all in it, or none.
"""

from __future__ import annotations

from tidelog.plan.theta.join_tree import TreeEdge, TreeNode


def binary(node: TreeNode) -> TreeNode:
    """Return an equivalent tree in which no node has more than two children."""
    edges = [TreeEdge(binary(edge.child), edge.predicates) for edge in node.edges]
    edges.sort(key=lambda edge: not node.variables <= edge.child.variables)  # guards first
    are_connex = any(edge.child.is_connex for edge in edges)
    while len(edges) > 2:
        inner = TreeNode(node.variables, tuple(edges[:2]), is_connex=are_connex)
        edges[:2] = [TreeEdge(inner)]
    return TreeNode(node.variables, tuple(edges), node.atom, is_connex=node.is_connex)
