"""How verbs of the function library are called: any of them, in the callback style or awaited."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, TypeVar

from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.domain.outcomes import Done
from quintet_core.storage.keys import name_key, partition_of
from quintet_core.storage.link import Reply, into
from quintet_core.storage.packing import Argument, pack
from quintet_core.storage.pipeline import Operation, Ordered, Pipeline

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Home(NamedTuple):
    """Where a queue lives: its name key, and the partition of that."""

    key: bytes
    partition: int


@lru_cache(maxsize=65536)
def home(namespace: str, queue: str, partitions: int) -> Home:
    """Where a queue lives, whether it exists or not."""
    key = name_key(namespace, queue)
    return Home(key, partition_of(key, partitions))


def parsed(parse: Callable[[Reply], _T], answer: Reply) -> _T | Refusal:
    """A verb's outcome from its answer. What cannot be read is damage, and told: someone waits for this answer."""
    if answer.__class__ is Refusal:
        return answer
    try:
        return parse(answer)
    except Exception:
        _log.exception("answer_not_understood")
        return refusal(Reason.DAMAGED, "Redis holds something else than was written")


class Asking:
    """Operations of `partitions` partitions over one pipeline."""

    def __init__(self, pipeline: Pipeline, partitions: int) -> None:
        self.pipeline = pipeline
        self.partitions = partitions

    def submit(
        self,
        partition: int,
        verb: str,
        arguments: list[Argument],
        on_answer: Callable[[Reply], None],
        order: Ordered | None = None,
    ) -> None:
        """Any verb, in the callback style. Raises TypeError for what is no argument."""
        self.pipeline.submit(Operation(partition, pack(verb, arguments), on_answer, order))

    async def ask(self, partition: int, verb: str, *arguments: Argument) -> Reply | Refusal:
        """Any verb; its raw answer, or the Refusal."""
        return await self._asked(partition, verb, list(arguments), None)

    def _asked(
        self, partition: int, verb: str, arguments: list[Argument], order: Ordered | None
    ) -> asyncio.Future[Reply]:
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self.submit(partition, verb, arguments, into(future), order)
        return future

    def _of_name(
        self,
        verb: str,
        namespace: str,
        name: str,
        rest: tuple[Argument, ...],
        parse: Callable[[Reply, int], _T],
        done: Done[_T],
        order: Ordered | None,
    ) -> None:
        """A verb of one queue or table; `parse` takes its answer and its partition."""
        key, partition = home(namespace, name, self.partitions)

        def on_answer(answer: Reply) -> None:
            done(parsed(lambda raw: parse(raw, partition), answer))

        self.submit(partition, verb, [key, *rest], on_answer, order)

    def partition_of(self, namespace: str, queue: str) -> int:
        """The partition of a queue."""
        return home(namespace, queue, self.partitions).partition

    def _place(self, job_id: int) -> tuple[int, bytes]:
        sequence, partition = divmod(job_id, self.partitions)
        return partition, sequence.to_bytes(8, "big")
