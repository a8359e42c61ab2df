"""Spark adapters: the session, the data sources, the processor and the worker."""
