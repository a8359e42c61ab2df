"""Messages and rows: the envelope, requests, responses, facts, and the rows of the Delta state table."""
