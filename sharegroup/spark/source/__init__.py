"""The source `sharegroup`: a streaming query as a member of a share group.

    spark.readStream.format("sharegroup").option("group.id", "orders").option("subscribe", "orders")…

A micro-batch goes through these modules:

1. `stream_reader` is asked by Spark for the next offset; `member` acquires records and renews their locks from then on.
2. `offset` puts the acquisition into Spark's offset log, so that a restarted query reads and holds the same batch.
3. `task_records` reads the payloads in the tasks, straight from the log.
4. `batch_acknowledgements` takes the calls of `acknowledge` in `foreachBatch`, in another process of the driver's
   machine, and leaves them in the batch's folder (inside the member's `folder`).
5. Spark commits the batch; `member` reads the folder, or accepts all records, and acknowledges.

`query_options` has the options of a query, and `spark/stop_condition.py` ends a query with `Trigger.AvailableNow`.
docs/spark_source.md describes the options, and what happens after a failure.
"""
