"""Programs to run: each reads its flags, calls the package, and ends with an exit code that means something."""
