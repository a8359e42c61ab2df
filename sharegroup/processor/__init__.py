"""The processor: the loop that takes, applies, commits and publishes, and what stands beside it; no Spark in it."""
