"""The shape of joins with inequalities: queries, their reduction, and generalized join trees.

The analysis of "Conjunctive Queries with Theta Joins Under Updates" (Idris, Ugarte, Vansummeren,
Voigt, Lehner), sections 3 and 6. No strategy uses it yet; `tidelog explain --plans` shows it.

    query.py          a rule as atoms, output variables and predicates
    triplet.py        hypergraph triplets, and the operations that reduce them
    join_tree.py      the reduction as the construction of a tree, and the verdict
    acyclic_part.py   for a cyclic query, the predicates that its tree leaves out
    binary.py         a tree whose nodes have two children at most
    drawing.py        a tree as text
    picture.py        what a picture of a tree shows
    dot.py, svg.py    pictures: for Graphviz, and without it
"""
