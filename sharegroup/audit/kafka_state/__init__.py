"""The state of a real Kafka's share groups: its internal topics decoded, folded, and written as a state table."""
