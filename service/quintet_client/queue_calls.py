"""What can be done with queues."""

from __future__ import annotations

from collections.abc import AsyncIterator

from quintet.v1 import queue_service_pb2 as wire

from quintet_client.calls import Calls
from quintet_client.queue import PauseDirection, Queue, QueueSettings


class QueueCalls(Calls):
    """The verbs of queues. Every method raises a `QuintetError` when the core refuses, or cannot be reached."""

    async def create_queue(self, queue: str, settings: QueueSettings | None = None) -> Queue:
        """Makes a queue. `QueueExistsError` when there is one."""
        request = wire.CreateQueueRequest(
            namespace=self.namespace, queue=queue, settings=(settings or QueueSettings()).to_wire()
        )
        result = await self._operate(self.session.submit_create_queue, request)
        return Queue.of_wire(result.create_queue.queue)

    async def update_queue(self, queue: str, settings: QueueSettings) -> Queue:
        """Replaces all settings of a queue."""
        request = wire.UpdateQueueRequest(namespace=self.namespace, queue=queue, settings=settings.to_wire())
        response: wire.UpdateQueueResponse = await self._call(self._queue_service.UpdateQueue, request)
        return Queue.of_wire(response.queue)

    async def delete_queue(self, queue: str) -> int:
        """Removes a queue with its jobs, leased ones too, and returns how many there were."""
        request = wire.DeleteQueueRequest(namespace=self.namespace, queue=queue)
        result = await self._operate(self.session.submit_delete_queue, request)
        return result.delete_queue.jobs

    async def get_queue(self, queue: str) -> Queue:
        """A queue, its settings and its counts."""
        request = wire.GetQueueRequest(namespace=self.namespace, queue=queue)
        result = await self._read(self.session.submit_get_queue, request)
        return Queue.of_wire(result.get_queue.queue)

    async def list_queues(self, *, prefix: str = "", page_size: int = 100) -> AsyncIterator[Queue]:
        """All queues of the namespace whose name starts with `prefix`."""
        request = wire.ListQueuesRequest(namespace=self.namespace, prefix=prefix, page_size=page_size)
        while True:
            result = await self._read(self.session.submit_list_queues, request)
            for queue in result.list_queues.queues:
                yield Queue.of_wire(queue)
            if not result.list_queues.next_page_token:
                return
            request.page_token = result.list_queues.next_page_token

    async def pause(
        self, queue: str, *, direction: PauseDirection = PauseDirection.BOTH, duration_ms: int = 0
    ) -> Queue:
        """Stops enqueue, dequeue or both. `duration_ms` 0: until resumed."""
        request = wire.PauseRequest(
            namespace=self.namespace, queue=queue, direction=direction.wire, duration_ms=duration_ms
        )
        response: wire.PauseResponse = await self._call(self._queue_service.Pause, request)
        return Queue.of_wire(response.queue)

    async def resume(self, queue: str) -> Queue:
        """Ends a pause."""
        request = wire.ResumeRequest(namespace=self.namespace, queue=queue)
        response: wire.ResumeResponse = await self._call(self._queue_service.Resume, request)
        return Queue.of_wire(response.queue)
