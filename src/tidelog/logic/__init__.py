"""A syntax tree becomes a checked program: names, types, safety, normal form, strata."""
