"""The queue without a name, which some protocol's clients expect to exist: made whenever the core is (again) there."""

from __future__ import annotations

import asyncio
from typing import Final

from quintet.v1.queue_pb2 import QUEUE_STRUCTURE_HEAP, QueueSettings
from quintet.v1.queue_service_pb2 import CreateQueueRequest
from quintet.v1.reason_pb2 import REASON_QUEUE_EXISTS, Reason
from quintet.v1.session_service_pb2 import SessionResult
from quintet_client.session import Session
from quintet_kit.logs import get_logger

from quintet_adapters.messages import outcome_of

_AGAIN_S: Final = 1.0


class DefaultQueue:
    """Sees to it that the queue exists in a namespace, without limits."""

    def __init__(self, session: Session, namespace: str) -> None:
        self._session = session
        self._owner = session.new_owner()
        self._request = CreateQueueRequest(
            namespace=namespace, queue="", settings=QueueSettings(structure=QUEUE_STRUCTURE_HEAP)
        )
        session.on_connected(self._create)
        if session.connected:
            self._create()

    def _create(self) -> None:
        self._session.submit_create_queue(self._owner, self._request, self._created)

    def _created(self, result: SessionResult) -> None:
        failure = result.failure
        if not result.HasField("failure") or failure.reason == REASON_QUEUE_EXISTS:
            return
        if outcome_of(failure) == "refused":
            get_logger().warning("default_queue_refused", reason=Reason.Name(failure.reason))
        elif self._session.connected:
            # The core is there, its store is not.
            asyncio.get_running_loop().call_later(_AGAIN_S, self._create_if_connected)

    def _create_if_connected(self) -> None:
        if self._session.connected:
            self._create()
