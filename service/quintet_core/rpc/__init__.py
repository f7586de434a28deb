"""The gRPC door: messages to operations, refusals to statuses, and who may do what."""
