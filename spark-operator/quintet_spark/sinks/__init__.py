"""Where streams end: one interface, `Sink`; Parquet as the default, Delta and Iceberg where their packages are."""
