"""ZeroMQ sockets beneath the key-value protocol: requests on a ROUTER, notifications on a PUB."""
