"""Durable files: each is written completely or not at all, and damage is detected by checksums.

Read the modules in this order:

- `files`: every operation on files; `syncing`: syncs in the background; `lock`: one writer;
- `framing`, `epochs`: the records of the write-ahead log; `log`, `log_reading`: the log itself;
- `extents`, `dictionaries`, `saved`, `snapshot`: arrays in files, and snapshots made of them;
- `manifest`: which files are the state;
- `places`: remote folders, for copies.

This folder knows files, checksums and arrays. persist/ knows which rows to write and when.
"""
