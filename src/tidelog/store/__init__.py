"""What is remembered: values as codes, rows as words, relations as sorted runs."""
