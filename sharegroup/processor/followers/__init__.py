"""The followers of published commits: log lines, activity, metrics and upkeep."""
