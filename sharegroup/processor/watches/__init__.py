"""Threads that watch the logs beside the loop."""
