"""The Delta state table: one atomic append for each micro-batch, and the fold that recovery and audits share."""
