"""The state at any point of the history, the changes between two, and the deliveries of each record."""
