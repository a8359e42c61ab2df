"""What follows published commits: log lines, activity, metrics, upkeep."""
