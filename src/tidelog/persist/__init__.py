"""Durable state: writing the log and snapshots, opening them again, and tools for the files."""
