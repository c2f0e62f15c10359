"""The strategies that maintain relations."""
