"""How change flows: the strategies that maintain relations."""
