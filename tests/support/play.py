"""Plays a conversation without sockets or a core, so that tests of protocols read like a script."""

from __future__ import annotations

from typing import Any

from quintet.v1 import job_pb2, reason_pb2
from quintet.v1 import queue_service_pb2 as api
from quintet.v1.session_service_pb2 import Failure, SessionResult
from quintet_adapters.protocols.conversation import Conversation, End


class Play:
    """Both ends of one conversation: the client's bytes and the core's results."""

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.asked: list[Any] = []
        """Requests that have no result yet."""

    def client_sends(self, data: bytes) -> Play:
        self.conversation.receive(data)
        return self._collect()

    def client_sends_split(self, data: bytes, *cuts: int) -> Play:
        ends = [*sorted(cuts), len(data)]
        start = 0
        for end in ends:
            if end > start:
                self.client_sends(data[start:end])
            start = max(start, end)
        return self

    def client_ends(self) -> Play:
        self.conversation.receive_end()
        return self._collect()

    def _collect(self) -> Play:
        self.asked.extend(self.conversation.requests)
        self.conversation.requests.clear()
        return self

    @property
    def written(self) -> bytes:
        """Everything the client has been sent and not yet looked at."""
        data = b"".join(self.conversation.output)
        self.conversation.output.clear()
        return data

    @property
    def end(self) -> End | None:
        """How the conversation ended, if it has."""
        return self.conversation.end

    @property
    def verbs(self) -> list[str]:
        return [request.verb for request in self.asked]

    def core_answers(self, result: SessionResult, place: int = 0) -> Play:
        """Answers the request at `place` of those that wait."""
        request = self.asked.pop(place)
        self.conversation.receive_result(request, result)
        return self._collect()


def enqueued(job_id: int) -> SessionResult:
    return SessionResult(enqueue=api.EnqueueResponse(ids=[job_id]))


def dequeued(
    job_id: int,
    payload: bytes = b"{}",
    *,
    token: int = 1,
    rank: int = 0,
    queue: str = "q",
    content_type: str = "application/json",
) -> SessionResult:
    job = job_pb2.Job(
        id=job_id,
        payload=payload,
        rank=rank,
        queue=queue,
        content_type=content_type,
        lease=job_pb2.Lease(token=token),
    )
    return SessionResult(dequeue=api.DequeueResponse(jobs=[job]))


def nothing_dequeued() -> SessionResult:
    return SessionResult(dequeue=api.DequeueResponse())


def acknowledged() -> SessionResult:
    return SessionResult(acknowledge=api.AcknowledgeResponse())


def released() -> SessionResult:
    return SessionResult(release=api.ReleaseResponse(state=job_pb2.JOB_STATE_READY))


def deleted() -> SessionResult:
    return SessionResult(delete=api.DeleteResponse())


def found(job_id: int) -> SessionResult:
    return SessionResult(get_job=api.GetJobResponse(job=job_pb2.Job(id=job_id)))


def failed(reason: reason_pb2.Reason.ValueType, message: str = "", **metadata: str) -> SessionResult:
    return SessionResult(failure=Failure(reason=reason, message=message, metadata=metadata))
