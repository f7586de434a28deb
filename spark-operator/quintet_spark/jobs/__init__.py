"""What runs: the archive and the rollup as streams, the report and the restore as batches, and all of it at once."""
