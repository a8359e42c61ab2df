"""The state of share-partitions over time and offsets, as the pictures show it."""
