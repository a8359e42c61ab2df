"""The takeover of the state table and the logs from an earlier processor."""
