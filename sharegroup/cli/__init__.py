"""The command line: topics, groups, consuming, and a live view; no JVM."""
