"""The transports: the only I/O of the adapters."""
