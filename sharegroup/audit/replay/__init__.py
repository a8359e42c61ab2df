"""The request log applied again: to verify rows and responses, and under other limits."""
