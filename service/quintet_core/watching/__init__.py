"""Whoever follows the event log as it grows: one reader of Redis a replica, fanned out to all."""
