"""The protocols: one sans-I/O file each. No sockets, no clock, no event loop."""
