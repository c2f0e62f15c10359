"""Text becomes a syntax tree: source positions, preprocessing, grammar, parser, printer."""
