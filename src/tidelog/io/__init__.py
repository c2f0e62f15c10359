"""Text and files on one side, Python values on the other.

Open the files in this order:

- `scalars`, `nested`, `order` and `values`: one value to text and back, and the order of values;
- `parameters`: what `.input` and `.output` say about a file;
- `files`, `lines` and `rows`: bytes become lines, lines fields, and fields values;
- `text`: the way back;
- `fast_read` and `fast_sort`: the same again for large relations, with Arrow;
- `facts`, `changes` and `results`: the three kinds of file that `tidelog run` knows;
- `atomic`: all files of a run, or none of them.

Nothing here knows about rules or engines; it only needs a `Relation` and the record types.
"""
