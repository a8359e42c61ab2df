"""Figures of a group's history: time in each state, deliveries, members, pins and gaps."""
