"""The live end of one partition's log, and who follows it.

An entry is looked at as little as its followers need: one that names no table costs next to nothing where only tables
are followed. Its events are decoded and encoded once, chosen once for each interest, and shared by all who have it.
"""

from __future__ import annotations

from collections.abc import Callable

from quintet_core.domain.event import Event
from quintet_core.storage.event_log import Entry, has_tables, last_offset_of, names_in
from quintet_core.storage.keys import split_name_key
from quintet_core.storage.records import unpack_chosen
from quintet_core.watching.interest import Interest
from quintet_core.watching.watcher import Watcher

Encode = Callable[[Event], bytes]
"""An event as the bytes that a response holds of it; those of several are joined."""
Pieces = list[tuple[int, bytes]]
"""Offsets of events, and the events encoded."""

NAMES_KNOWN_MAX = 10_000


class Selector:
    """Chooses from entries what some interests want."""

    def __init__(self, partition: int, partitions: int, encode: Encode) -> None:
        self._partition = partition
        self._partitions = partitions
        self._encode = encode
        self._interests: tuple[Interest, ...] = ()
        self._only_tables = True
        # Who wants events of a number. Numbers are never used again.
        self._wanting: dict[int, tuple[Interest, ...]] = {}

    def set_interests(self, interests: tuple[Interest, ...]) -> None:
        """From now on these."""
        self._interests = interests
        self._only_tables = all(interest.of_tables for interest in interests)
        self._wanting.clear()

    def select(self, entry: Entry) -> dict[Interest, Pieces]:
        """What each interest wants of an entry, in order; nothing for those that want nothing."""
        names = entry[2]
        if self._only_tables and not has_tables(names):
            return {}
        wanted = {number: who for number, key in names_in(names) if (who := self._who_wants(number, key))}
        chosen: dict[Interest, Pieces] = {}
        if not wanted:
            return chosen
        for number, event in unpack_chosen(entry, self._partition, self._partitions, wanted):
            encoded = b""
            for interest in wanted[number]:
                if interest.takes(event):
                    encoded = encoded or self._encode(event)
                    chosen.setdefault(interest, []).append((event.offset, encoded))
        return chosen

    def _who_wants(self, number: int, key: bytes) -> tuple[Interest, ...]:
        found = self._wanting.get(number)
        if found is None:
            namespace, name = split_name_key(key)
            found = tuple(interest for interest in self._interests if interest.wants(number, namespace, name))
            if len(self._wanting) >= NAMES_KNOWN_MAX:
                self._wanting.clear()
            self._wanting[number] = found
        return found


class Feed:
    """Followed from `last` on, the offset of a whole entry."""

    def __init__(self, partition: int, last: int, selector: Selector) -> None:
        self.partition = partition
        self.last = last
        self._selector = selector
        self._followers: dict[Interest, dict[Watcher, None]] = {}

    @property
    def empty(self) -> bool:
        """Whether nobody follows it."""
        return not self._followers

    @property
    def followers(self) -> list[Watcher]:
        """All who follow it."""
        return [watcher for watchers in self._followers.values() for watcher in watchers]

    def join(self, watcher: Watcher) -> None:
        """Follow it: the watcher has come as far as it, or further."""
        self._followers.setdefault(watcher.interest, {})[watcher] = None
        if len(self._followers[watcher.interest]) == 1:
            self._selector.set_interests(tuple(self._followers))

    def leave(self, watcher: Watcher) -> None:
        """Follow it no more, unless it does not anyway. The watcher has come as far as the feed had."""
        watchers = self._followers.get(watcher.interest, {})
        if watcher not in watchers:
            return
        watcher.cursors[self.partition] = max(watcher.cursors[self.partition], self.last)
        del watchers[watcher]
        if not watchers:
            del self._followers[watcher.interest]
            self._selector.set_interests(tuple(self._followers))

    def take(self, entry: Entry) -> list[Watcher]:
        """Give one more entry to all; returns those who had no room for it, and follow no more."""
        last, full = last_offset_of(entry[0]), list[Watcher]()
        for interest, pieces in self._selector.select(entry).items():
            data = b"".join([encoded for _, encoded in pieces])
            for watcher in list(self._followers[interest]):
                if not self._give(watcher, pieces, data):
                    self.leave(watcher)
                    full.append(watcher)
        self.last = last
        return full

    def _give(self, watcher: Watcher, pieces: Pieces, data: bytes) -> bool:
        cursor = watcher.cursors[self.partition]
        if cursor >= pieces[0][0]:
            # It read further in the log before it came here.
            pieces = [piece for piece in pieces if piece[0] > cursor]
            data = b"".join([encoded for _, encoded in pieces])
        if not pieces:
            return True
        if not watcher.has_room(len(data)):
            return False
        watcher.push(data, len(pieces))
        return True
