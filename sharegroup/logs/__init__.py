"""The log port and its adapters; members and the processor communicate only through a log."""
