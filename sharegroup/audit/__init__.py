"""Answers from the state table: what happened to each record, and whether everything adds up."""
