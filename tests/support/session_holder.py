"""A client to be killed: several sessions, each on a connection of its own, each with a job under an owner lease.

python -m tests.support.session_holder TARGET SESSIONS RESUMABLE QUEUE

Prints, for each, a line of session number, secret (hex) and job id; then "held", and then does nothing.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from tests.support.api import open_api
from tests.support.session_stream import open_session


async def hold(target: str, sessions: int, resumable: bool, queue: str) -> None:
    """Until killed."""
    async with AsyncExitStack() as stack:
        for _ in range(sessions):
            api = await stack.enter_async_context(open_api(target))
            session = await stack.enter_async_context(open_session(api, resumable=resumable))
            await session.put(queue)
            job = await session.take(queue)
            await session.send(dequeue={"queues": [f"{queue}-empty"], "wait_ms": -1, "allow_missing": True})
            print(session.opened.session, session.opened.secret.hex(), job.id, flush=True)
        print("held", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    _, target, sessions, resumable, queue = sys.argv
    asyncio.run(hold(target, int(sessions), resumable == "1", queue))
