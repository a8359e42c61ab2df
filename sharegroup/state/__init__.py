"""The Delta state table: one atomic append a micro-batch, and the one fold that recovery and audits share."""
