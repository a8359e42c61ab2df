"""Dead-letter records: their bytes, and the thread that writes them."""
