"""The verbs: one word for each deed, the same in RPCs, operations, functions, tokens, metrics and logs."""

QUEUE_VERBS = (
    "enqueue", "dequeue", "await_jobs", "acknowledge", "release", "extend", "delete", "peek", "get_job", "count",
    "list_jobs", "redrive", "purge", "pause", "resume", "create_queue", "update_queue", "delete_queue",
    "get_queue", "list_queues",
)  # fmt: skip
TABLE_VERBS = (
    "create_table", "update_table", "delete_table", "get_table", "list_tables", "put_row", "get_row", "delete_row",
    "scan_rows", "write_rows",
)  # fmt: skip
EVENT_VERBS = (
    "list_partitions", "read_events", "commit_offset", "find_offsets", "open_consumer", "list_consumers",
    "delete_consumer",
)  # fmt: skip
METRICS_VERBS = ("snapshot",)
STREAM_VERBS = ("subscribe", "watch_rows", "read_blocks", "stream")
ADMIN_VERBS = ("get_durability", "get_info", "get_namespace", "update_namespace")
SESSION_VERBS = ("cancel_wait", "close_owner", "keep_leases", "heartbeat", "unknown")
"""What only sessions have; tokens do not name them."""
SESSION_OPERATIONS = (
    "enqueue", "dequeue", "await_jobs", "acknowledge", "release", "extend", "delete", "peek", "get_job", "count",
    "create_queue", "delete_queue", "get_queue", "list_queues", "create_table", "delete_table", "list_tables",
    "put_row", "get_row", "delete_row", "scan_rows", "write_rows", *SESSION_VERBS,
)  # fmt: skip
"""The operations of a session, as the API names them; "unknown" is one that is none."""
