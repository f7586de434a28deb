"""One method per verb: check the bounds, then one call of the store. No gRPC, no Redis."""
