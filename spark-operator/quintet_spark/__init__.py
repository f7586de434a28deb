"""Quintet's event and metrics logs in Spark: the data source, and the jobs that are built on it."""
