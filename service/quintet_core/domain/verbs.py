"""The verbs: one word for each deed, the same in RPCs, operations, functions, tokens, metrics and logs."""

QUEUE_VERBS = (
    "enqueue", "dequeue", "await_jobs", "acknowledge", "release", "extend", "delete", "peek", "get_job", "count",
    "list_jobs", "redrive", "purge", "pause", "resume", "create_queue", "update_queue", "delete_queue",
    "get_queue", "list_queues",
)  # fmt: skip
EVENT_VERBS = ("list_partitions", "read_events", "commit_offset", "subscribe")
ADMIN_VERBS = ("get_durability", "get_info")
SESSION_VERBS = ("cancel_wait", "close_owner", "keep_leases", "heartbeat", "unknown")
"""What only sessions have; tokens do not name them."""
