"""The sinks of members, compared with the state table: each accepted record has its result there, once."""
