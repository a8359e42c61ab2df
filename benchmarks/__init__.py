"""Measured targets of the project; each module with a `main` runs as `python -m benchmarks.<module>`."""
