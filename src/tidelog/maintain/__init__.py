"""How change flows: strategies that keep relations up to date."""
