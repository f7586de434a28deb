"""The operator's commands. A new one is a module here, and an entry in `MODULES`.

Exit codes: 0 done; 1 nothing there; 2 wrong usage; 3 refused by the core; 4 the core is away or cannot do it now; 5 the
core failed; 130 interrupted (`quintet_cli.commands.exit_codes`).
"""

MODULES = {
    "queues": "quintet_cli.commands.queues",
    "put": "quintet_cli.commands.put",
    "take": "quintet_cli.commands.take",
    "ack": "quintet_cli.commands.ack",
    "peek": "quintet_cli.commands.peek",
    "jobs": "quintet_cli.commands.jobs",
    "redrive": "quintet_cli.commands.redrive",
    "pause": "quintet_cli.commands.pause",
    "resume": "quintet_cli.commands.pause",
    "purge": "quintet_cli.commands.purge",
    "table": "quintet_cli.commands.table",
    "events": "quintet_cli.commands.events",
    "consumers": "quintet_cli.commands.consumers",
    "namespace": "quintet_cli.commands.namespace",
    "metrics": "quintet_cli.commands.metrics",
    "durability": "quintet_cli.commands.durability",
    "bench": "quintet_cli.commands.bench",
}
"""Every operator command and the module that has it, in the order of `quintet --help`."""
