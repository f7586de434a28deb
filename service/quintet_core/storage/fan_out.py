"""One observer of the pipeline for several listeners, that may come after the pipeline itself."""

from __future__ import annotations

from collections.abc import Callable


class FanOut:
    """Tells each listener, in the order they were added. As storage.pipeline.Observer."""

    def __init__(self) -> None:
        self.batches: list[Callable[[int, int, float], None]] = []
        self.clocks: list[Callable[[int, int, int | None], None]] = []
        self.wakes: list[Callable[[bytes, int], None]] = []

    def on_batch(self, operations: int, calls: int, seconds: float) -> None:
        """A pipeline came back."""
        for listener in self.batches:
            listener(operations, calls, seconds)

    def on_clock(self, partition: int, now_ms: int, due_at_ms: int | None) -> None:
        """A partition's clock, and a time at which something in it falls due."""
        for listener in self.clocks:
            listener(partition, now_ms, due_at_ms)

    def on_woken(self, name_key: bytes, ready: int) -> None:
        """A queue that somebody waits for has this many ready jobs; 0: it was deleted."""
        for listener in self.wakes:
            listener(name_key, ready)
