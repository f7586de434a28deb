"""From the logs to what people ask of them: pure functions from DataFrames to DataFrames."""
