"""A Delta table that Spark writes results into, so that each write is in it once, whatever dies.

A write is that of one acquisition (`core/open_writes.py`): an application id and a version, which are the transaction
of its commits. Delta refuses a transaction that is not above the one it knows.

1. `checks` decides at the start whether the table, and those who commit to it, can keep that. `commit_lock` keeps
   other programs from a table on a local disk.
2. `sink_write` commits the results of an acquisition: all in one commit, which closes the write, or in rising
   parts, and then the closing one. The acknowledgements of its records are in the commit's `userMetadata`.
3. Success, silence and exceptions of Spark prove nothing: a writer that finds its transaction taken is skipped without
   an error. So each commit is read back from the log (`table_log`), and only what the log says is reported.
4. `spark_sink` looks up the writes of lost members: it commits an empty fence with the write's closing transaction,
   then reads what is there.

`docs/exactly_once.md` has the rules, each with what breaks without it.
"""
