"""Kafka share groups (KIP-932) on PySpark Structured Streaming."""

__version__ = "0.1.0"
