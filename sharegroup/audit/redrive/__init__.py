"""Records that a group gave up, back to delivery."""
