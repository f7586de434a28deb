"""What TaskFlux requests ask of the core: from packets to messages of the API."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from quintet.v1 import queue_service_pb2 as api
from quintet.v1.job_pb2 import PLACEMENT_TAIL
from quintet.v1.queue_pb2 import QUEUE_STRUCTURE_ARRAY, QUEUE_STRUCTURE_HEAP, QueueSettings

from quintet_adapters.protocols.payload import BYTES_CONTENT_TYPE
from quintet_adapters.protocols.taskflux_answers import Answers, Code
from quintet_adapters.protocols.taskflux_packets import Create, Enqueue

_NAME: Final = re.compile(rb"[!-~]{0,255}")
_NO_LIMIT: Final = -1
_DEFAULT, _HEAP, _ARRAY = 0, 1, 2
_PAGE_QUEUES: Final = 1000
_CACHED_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class TaskFluxLimits:
    """Bounds of one conversation, and how it speaks."""

    namespace: str = "default"
    csharp: bool = False
    """As the project's own C# client expects it, where its pages say otherwise."""
    idle_ms: int = 60_000
    """From the last whole packet or answer; waiting in a Dequeue is not idle."""
    packet_bytes_max: int = 16 * 1024 * 1024


def is_queue_name(name: bytes) -> bool:
    """Whether this protocol can write it; the empty one names the default queue."""
    return _NAME.fullmatch(name) is not None


def fault_of(packet: Create, *, csharp: bool) -> Code | None:
    """What is wrong with a Create by itself; the order of the checks is the protocol's."""
    if packet.structure not in ((_HEAP, _ARRAY) if csharp else (_DEFAULT, _HEAP, _ARRAY)):
        return Code.UNKNOWN_STRUCTURE
    if packet.keys is None:
        if packet.structure == _ARRAY:
            return Code.NO_KEY_RANGE
    elif packet.keys[0] > packet.keys[1]:
        return Code.BAD_KEY_RANGE
    if packet.payload_bytes_max < _NO_LIMIT:
        return Code.BAD_PAYLOAD_MAX
    if packet.size_max < _NO_LIMIT:
        return Code.BAD_SIZE_MAX
    if not is_queue_name(packet.queue):
        return Code.BAD_NAME
    return None if packet.queue else Code.EXISTS


class TaskFluxService:
    """What the conversations of a process share. Names given to it are good ones."""

    def __init__(self, limits: TaskFluxLimits) -> None:
        self.limits = limits
        self.answers = Answers(csharp=limits.csharp)
        self.address = ""
        """Where clients find this service, as ClusterMetadata tells them."""
        self._namespace = "" if limits.namespace == "default" else limits.namespace
        self._dequeues: dict[tuple[bytes, int], api.DequeueRequest] = {}

    def enqueue_request(self, record: Enqueue) -> api.EnqueueRequest:
        """For a record that was acknowledged. The default queue is made should it be missing: it always exists."""
        queue = record.queue.decode()
        request = api.EnqueueRequest(namespace=self._namespace, queue=queue, create_if_missing=not queue)
        request.jobs.add(payload=record.payload, content_type=BYTES_CONTENT_TYPE, rank=record.key)
        return request

    def dequeue_request(self, queue: bytes, wait_ms: int) -> api.DequeueRequest:
        """Workers ask for the same over and over."""
        try:
            return self._dequeues[queue, wait_ms]
        except KeyError:
            if len(self._dequeues) >= _CACHED_MAX:
                self._dequeues.clear()
            request = self._dequeues[queue, wait_ms] = api.DequeueRequest(
                namespace=self._namespace,
                queues=(queue.decode(),),
                jobs_max=1,
                wait_ms=wait_ms,
                owner_lease=True,
                placement_on_close=PLACEMENT_TAIL,
                # Should the default queue be missing, it is an empty one.
                allow_missing=not queue,
            )
            return request

    def acknowledge_request(self, job_id: int, token: int) -> api.AcknowledgeRequest:
        """For a record in hand."""
        return api.AcknowledgeRequest(namespace=self._namespace, id=job_id, token=token)

    def release_request(self, job_id: int, token: int) -> api.ReleaseRequest:
        """A record that is not acknowledged goes to the tail of its key."""
        return api.ReleaseRequest(
            namespace=self._namespace, id=job_id, token=token, delay_ms=0, placement=PLACEMENT_TAIL
        )

    def count_request(self, queue: bytes) -> api.CountRequest:
        """How many."""
        return api.CountRequest(namespace=self._namespace, queue=queue.decode())

    def create_request(self, packet: Create) -> api.CreateQueueRequest:
        """For a Create without fault."""
        settings = QueueSettings(
            structure=QUEUE_STRUCTURE_ARRAY if packet.structure == _ARRAY else QUEUE_STRUCTURE_HEAP
        )
        if packet.size_max != _NO_LIMIT:
            settings.jobs_max = packet.size_max
        if packet.payload_bytes_max != _NO_LIMIT:
            settings.payload_bytes_max = packet.payload_bytes_max
        if packet.keys is not None:
            settings.rank_range.min, settings.rank_range.max = packet.keys
        return api.CreateQueueRequest(namespace=self._namespace, queue=packet.queue.decode(), settings=settings)

    def delete_request(self, queue: bytes) -> api.DeleteQueueRequest:
        """With all its records."""
        return api.DeleteQueueRequest(namespace=self._namespace, queue=queue.decode())

    def list_request(self, page_token: str) -> api.ListQueuesRequest:
        """One page; "" is the first."""
        return api.ListQueuesRequest(namespace=self._namespace, page_size=_PAGE_QUEUES, page_token=page_token)
