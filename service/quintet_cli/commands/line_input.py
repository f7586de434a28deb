"""Lines of a file or pipe, as they come, without holding up the event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator

_READ_BYTES_MAX = 1 << 20


async def batches_of_lines(descriptor: int) -> AsyncIterator[list[bytes]]:
    """The lines that can be read at a time, without their ends; empty lines are left out.

    A slow pipe gives small batches soon, a file large ones. Reads in threads that do not keep the process from ending:
    a pipe may be silent for ever, and the connection wants its heartbeats meanwhile.
    """
    rest = b""
    while data := await _read(descriptor):
        *lines, rest = (rest + data).split(b"\n")
        if full := [stripped for line in lines if (stripped := line.rstrip(b"\r"))]:
            yield full
    if rest:
        yield [rest]


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()

    def settle(data: bytes, error: OSError | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(data)

    def read() -> None:
        # Of the descriptor itself: a buffered reader that a thread holds breaks the end of the interpreter.
        try:
            data, error = os.read(descriptor, _READ_BYTES_MAX), None
        except OSError as failed:
            data, error = b"", failed
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, data, error)

    threading.Thread(target=read, daemon=True).start()
    return await done
