"""The pure engine: record states, runs of offsets, and the share-partition. No I/O, no clock, no Spark."""
