"""Messages and rows: the envelope, requests, responses, internal messages, and the rows of the Delta state table."""
