"""Files and tables on one side, checked rows on the other.

Read the modules in this order:

- `parameters`: the parameters of `.input` and `.output`;
- `lines` and `rows`: bytes become lines, lines become fields, and fields become values;
- `text`: rows become text again;
- `fast_read`: the same as `rows` for large files, with Arrow;
- `facts`, `changes` and `results`: the three kinds of files of `tidelog run`;
- `tabular`, `columnar`, `columns` and `conversion`: Python objects and Arrow tables;
- `offsets`: where sources have been read to;
- `atomic`: files that are written completely or not at all.

Nothing here depends on rules or engines, only on a `Relation` and the record types.
"""
