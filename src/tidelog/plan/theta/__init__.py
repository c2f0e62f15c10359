"""Joins with inequalities: their shape, and how they are maintained without storing their result.

After "Conjunctive Queries with Theta Joins Under Updates" (Idris, Ugarte, Vansummeren, Voigt,
Lehner): the analysis of sections 3 and 6, and the reducts of section 4.

    compared.py       comparisons between two atoms, and the ranges that they give
    nesting.py        joins as nested ranges: how results are counted and read as tables
    ranged.py         aggregates over two atoms that read ranges
    query.py          a rule as atoms, output variables and predicates
    triplet.py        hypergraph triplets, and the operations that reduce them
    join_tree.py      the reduction as the construction of a tree, and the verdict
    acyclic_part.py   for a cyclic query, the predicates that its tree leaves out
    binary.py         a tree whose nodes have two children at most
    choice.py         which relations are maintained by a tree
    rewriting.py      a rule as the rules of its tree: reducts, and a join of those with the output
    unfolding.py      rules that read such a relation read what it joins
    drawing.py        a tree as text
    picture.py        what a picture of a tree shows
    dot.py, svg.py    pictures: for Graphviz, and without it
"""
