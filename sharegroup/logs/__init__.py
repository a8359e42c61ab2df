"""The log port and its adapters: everything that members and the processor tell each other goes through a log."""
