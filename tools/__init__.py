"""Generators of documents and schemas, run by make; tests compare their output with the files."""
