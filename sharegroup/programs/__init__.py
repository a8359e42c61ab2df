"""Programs: the command line as a whole, the processor and the worker, and the start of a project."""
