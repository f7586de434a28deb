"""Places where clients come in."""

from __future__ import annotations

import asyncio
from typing import Protocol

from quintet_kit.exposition import address_of


class Listener(Protocol):
    """One address of an adapter process."""

    @property
    def name(self) -> str:
        """What the address is called in the ready file: the adapter's name, or that and a word of its own."""

    @property
    def address(self) -> str:
        """`host:port`, with the port that was chosen."""

    def stop_accepting(self) -> None:
        """Let nobody further in; who is connected stays."""


class ServerListener:
    """An asyncio server as a listener."""

    def __init__(self, name: str, server: asyncio.Server) -> None:
        self.name = name
        self.address = address_of(server)
        self._server = server

    def stop_accepting(self) -> None:
        """Closes the listening sockets."""
        self._server.close()
