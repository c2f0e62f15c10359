"""Types of columns, and their values: as Python objects, as text, in order."""
