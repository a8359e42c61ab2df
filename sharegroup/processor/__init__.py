"""The processor, independent of Spark: the loop that takes, applies, commits and publishes, and its threads."""
