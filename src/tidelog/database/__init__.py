"""The Python API: databases, transactions, views, registered aggregates, explanations."""
