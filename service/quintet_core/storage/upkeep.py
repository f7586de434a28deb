"""Verbs that keep a partition going: sessions, logs, and duties. All but heartbeats are awaited."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from quintet_core.domain.errors import Refusal
from quintet_core.domain.job import DeadLetter, Job
from quintet_core.domain.namespace import NamespaceSettings
from quintet_core.domain.outcomes import Done
from quintet_core.storage import records
from quintet_core.storage.asking import parsed
from quintet_core.storage.keys import name_key
from quintet_core.storage.link import Reply
from quintet_core.storage.log_store import LogStore
from quintet_core.storage.packing import Argument
from quintet_core.storage.pipeline import Ordered
from quintet_core.storage.snapshot_store import SnapshotStore


class Upkeep(LogStore, SnapshotStore):
    """Sessions, logs and duties of every partition."""

    # --- sessions

    def close_owner(
        self, partition: int, session: bytes, owner: bytes, order: Ordered | None = None, kept: Sequence[int] = ()
    ) -> Awaitable[int | Refusal]:
        """Release the leases of an owner in a partition, but for those of the jobs `kept`; how many. The first step is
        submitted at once, so it has its place in the owner's order."""
        sequences = [self._place(id_)[1] for id_ in kept if id_ > 0 and id_ % self.partitions == partition]
        return self._release_all(partition, "close_owner", [session, owner], [len(sequences), *sequences], order)

    def close_session(self, partition: int, session: bytes) -> Awaitable[int | Refusal]:
        """Release all leases of a session in a partition, for good; how many."""
        return self._release_all(partition, "close_session", [session], [], None)

    def _release_all(
        self, partition: int, verb: str, head: list[Argument], rest: list[Argument], order: Ordered | None
    ) -> Awaitable[int | Refusal]:
        step = self._asked(partition, verb, [*head, b"", *rest], order)

        async def steps(answering: Awaitable[Reply]) -> int | Refusal:
            released = 0
            while True:
                answer = await answering
                if isinstance(answer, Refusal):
                    return answer
                released += int(answer[0])
                if not answer[1]:
                    return released
                answering = self._asked(partition, verb, [*head, answer[1], *rest], order)

        return steps(step)

    def heartbeat(self, partition: int, sessions: Sequence[bytes], ttl_ms: int, done: Done[list[int]]) -> None:
        """For each session 1 (alive, and now for ttl_ms more), 0 (holds nothing in this partition) or -1 (lapsed)."""
        self.submit(partition, "heartbeat", [ttl_ms, len(sessions), *sessions], done)

    # --- namespaces

    async def get_namespace(self, partition: int, namespace: str) -> NamespaceSettings | Refusal:
        """What holds for a namespace in a partition."""
        return parsed(records.unpack_namespace, await self.ask(partition, "get_namespace", namespace))

    async def update_namespace(
        self, partition: int, namespace: str, settings: NamespaceSettings, namespaces_max: int
    ) -> Refusal | None:
        """Replace it. Refusal: LIMIT_EXCEEDED."""
        flags = records.pack_namespace(settings)
        answer = await self.ask(partition, "update_namespace", namespace, flags, namespaces_max)
        return answer if isinstance(answer, Refusal) else None

    # --- duties

    async def settle_due(self, partition: int, queues_max: int) -> bool | Refusal:
        """Carry out what is due; whether there may be more."""
        return _more(await self.ask(partition, "settle_due", queues_max))

    async def lapse(self, partition: int) -> bool | Refusal:
        """Release leases of a session whose time is over; whether there may be more."""
        return _more(await self.ask(partition, "lapse"))

    async def sweep(self, partition: int) -> bool | Refusal:
        """Remove some of what nobody can reach any more; whether there may be more."""
        return _more(await self.ask(partition, "sweep"))

    async def letters(self, partition: int, skip: int, limit: int) -> list[DeadLetter] | Refusal:
        """Dead jobs that are to move to their queue's dead-letter queue, behind the first `skip` of them."""
        answer = await self.ask(partition, "letters", skip, limit)
        if isinstance(answer, Refusal):
            return answer
        return [
            DeadLetter(
                records.unpack_shown(shown, partition, self.partitions),
                records.token_of_run(shown[3]),
                records.unpack_settings(shown[6]).dead_letter_queue,
            )
            for shown in answer
        ]

    async def dead_letter(self, job: Job, to: str) -> Refusal | None:
        """The job has been put into its dead-letter queue, and leaves its own."""
        partition, sequence = self._place(job.id)
        scope = name_key(job.namespace, job.queue)
        answer = await self.ask(partition, "dead_letter", sequence, scope, b"1", to)
        return answer if isinstance(answer, Refusal) else None


def _more(answer: Reply) -> bool | Refusal:
    if isinstance(answer, Refusal):
        return answer
    return bool(answer)
