"""Tests of a state table on an object store."""
