"""The request log applied again: to verify rows and answers, and under other limits."""
