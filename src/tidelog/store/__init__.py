"""Relations in memory: values as codes, rows as words, relations as sorted runs."""
