"""The operator's commands. A new one is a module here, and an entry in `ALL`.

Exit codes: 0 done; 1 nothing there; 2 wrong usage; 3 refused by the core; 4 the core is away or cannot do it now; 5 the
core failed; 130 interrupted (`quintet_cli.commands.exit_codes`).
"""

import click

from quintet_cli.commands.ack import ack
from quintet_cli.commands.bench import bench
from quintet_cli.commands.consumers import consumers
from quintet_cli.commands.durability import durability
from quintet_cli.commands.events import events
from quintet_cli.commands.jobs import jobs
from quintet_cli.commands.metrics import metrics
from quintet_cli.commands.namespace import namespace
from quintet_cli.commands.pause import pause, resume
from quintet_cli.commands.peek import peek
from quintet_cli.commands.purge import purge
from quintet_cli.commands.put import put
from quintet_cli.commands.queues import queues
from quintet_cli.commands.redrive import redrive
from quintet_cli.commands.table import table
from quintet_cli.commands.take import take

ALL: tuple[click.Command, ...] = (
    queues,
    put,
    take,
    ack,
    peek,
    jobs,
    redrive,
    pause,
    resume,
    purge,
    table,
    events,
    consumers,
    namespace,
    metrics,
    durability,
    bench,
)
"""Every operator command, in the order of `quintet --help`."""
