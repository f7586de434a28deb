"""Which events somebody wants. Those who want the same share the work of choosing them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from quintet_core.domain.event import Event, EventKind
from quintet_core.storage.records import FIRST_TABLE


class Interest(Protocol):
    """Equal ones are the same, and have the same hash."""

    def wants(self, number: int, namespace: str, name: str) -> bool:
        """Whether events of a queue or table can be wanted at all. Asked once for each number, not for each event."""

    def takes(self, event: Event) -> bool:
        """Whether an event of one that is wanted is."""

    @property
    def of_tables(self) -> bool:
        """Whether only events of tables and rows are wanted."""


@dataclass(frozen=True, slots=True)
class RowInterest:
    """Changes of the rows whose keys begin with a prefix, and of the tables. No tables: all of the namespace."""

    namespace: str
    tables: frozenset[str]
    key_prefix: bytes = b""

    def wants(self, number: int, namespace: str, name: str) -> bool:
        """As Interest."""
        return number >= FIRST_TABLE and namespace == self.namespace and (not self.tables or name in self.tables)

    def takes(self, event: Event) -> bool:
        """As Interest."""
        return event.kind >= EventKind.TABLE_CREATED or event.key.startswith(self.key_prefix)

    @property
    def of_tables(self) -> bool:
        """As Interest."""
        return True


@dataclass(frozen=True, slots=True)
class EventInterest:
    """Everything in some namespaces."""

    sees: Callable[[str], bool]

    def wants(self, number: int, namespace: str, name: str) -> bool:
        """As Interest."""
        return self.sees(namespace)

    def takes(self, event: Event) -> bool:
        """As Interest."""
        return True

    @property
    def of_tables(self) -> bool:
        """As Interest."""
        return False
