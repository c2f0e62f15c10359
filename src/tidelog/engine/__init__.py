"""The engines under a database: the kernel, the reference engine, and how stored rows are read."""
