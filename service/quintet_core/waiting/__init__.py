"""Dequeues that wait, and the sessions and owners that hold leases."""
