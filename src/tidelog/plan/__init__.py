"""How a rule is computed: lowered to plain literals, then ordered by estimated cost."""
