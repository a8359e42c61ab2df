"""Standby processors, and how the active one responds to them."""
