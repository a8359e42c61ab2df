"""The live auditor's part for each share-partition: checks, and statistics by minute."""
