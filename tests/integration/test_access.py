"""Who may do what on the TCP listener: TLS, client certificates, bearer tokens. The unix socket asks for nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from quintet.v1 import admin_service_pb2 as a
from quintet.v1 import event_service_pb2 as e
from quintet.v1 import metrics_service_pb2 as m
from quintet.v1 import queue_service_pb2 as q
from quintet.v1 import session_service_pb2 as s
from quintet.v1 import table_service_pb2 as t
from quintet.v1.job_pb2 import NewJob
from quintet.v1.reason_pb2 import Reason

from tests.support.api import Api, open_api, refused
from tests.support.secured_core import secured_core
from tests.support.stack import CorePart, RedisPart, until

CODE = grpc.StatusCode
CLERK, AUDITOR, LATER = "clerk-token", "auditor-token", "later-token"
WATCHER = "watcher-token"
TOKENS = f"""
[[token]]
name = "clerk"
token = "{CLERK}"
namespaces = ["mail", "mail-*"]
verbs = ["enqueue", "dequeue", "acknowledge", "create_queue", "put_row"]

[[token]]
name = "watcher"
token = "{WATCHER}"
namespaces = ["mail"]
verbs = ["snapshot", "stream"]

[[token]]
name = "auditor"
sha256 = "{hashlib.sha256(AUDITOR.encode()).hexdigest()}"
namespaces = ["*"]
verbs = ["*"]
"""


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="quintet-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def core(folder: Path, authority: trustme.CA) -> Iterator[CorePart]:
    """A core with TLS, client certificates and tokens on its TCP listener."""
    with secured_core(folder, authority, TOKENS) as core:
        yield core


Open = Callable[[], AbstractAsyncContextManager[Api]]


@pytest.fixture
def trusted(authority: trustme.CA) -> grpc.ChannelCredentials:
    return credentials(authority, authority.issue_cert("client.example"))


@pytest.fixture
async def api(core: CorePart, trusted: grpc.ChannelCredentials) -> AsyncIterator[Api]:
    async with open_api(target(core), trusted) as api:
        yield api


def target(core: CorePart) -> str:
    return f"localhost:{core.port('core-grpc')}"


def credentials(authority: trustme.CA, shown: trustme.LeafCert | None) -> grpc.ChannelCredentials:
    if shown is None:
        return grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    chain = b"".join(blob.bytes() for blob in shown.cert_chain_pems)
    return grpc.ssl_channel_credentials(authority.cert_pem.bytes(), shown.private_key_pem.bytes(), chain)


def bearing(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def enqueue(namespace: str) -> q.EnqueueRequest:
    return q.EnqueueRequest(namespace=namespace, queue="letters", jobs=[NewJob()], create_if_missing=True)


class TestTls:
    async def test_wants_a_certificate_that_its_authority_signed(self, core: CorePart, authority: trustme.CA) -> None:
        stranger = trustme.CA().issue_cert("client.example")
        for shown in (None, stranger):
            async with open_api(target(core), credentials(authority, shown)) as api:
                answer = await refused(api.admin.GetInfo(a.GetInfoRequest(), metadata=bearing(AUDITOR)))
                assert answer.code is CODE.UNAVAILABLE

    async def test_is_not_spoken_in_the_clear(self, core: CorePart) -> None:
        async with open_api(target(core)) as api:
            answer = await refused(api.admin.GetInfo(a.GetInfoRequest(), metadata=bearing(AUDITOR)))
            assert answer.code is CODE.UNAVAILABLE

    async def test_lets_a_known_client_in(self, api: Api) -> None:
        assert (await api.admin.GetInfo(a.GetInfoRequest(), metadata=bearing(AUDITOR))).ready


class TestTokens:
    @pytest.mark.parametrize(
        "metadata",
        [(), bearing("wrong"), bearing(""), (("authorization", CLERK),), (("authorization", f"Basic {CLERK}"),)],
    )
    async def test_are_asked_for(self, api: Api, metadata: Any) -> None:
        answer = await refused(api.queues.Enqueue(enqueue("mail"), metadata=metadata))
        assert (answer.code, answer.reason) == (CODE.UNAUTHENTICATED, "UNAUTHENTICATED")

    async def test_bound_the_snapshots_that_are_told(self, api: Api) -> None:
        for namespace in ("mail", "other"):
            await api.queues.Enqueue(enqueue(namespace), metadata=bearing(AUDITOR))
        of_all = api.metrics.Stream(m.StreamRequest(), metadata=bearing(AUDITOR))
        seen: set[str] = set()
        while not {"mail", "other"} <= seen:
            seen |= {queue.namespace for queue in (await of_all.read()).queues}
        of_all.cancel()
        told = await api.metrics.Snapshot(m.SnapshotRequest(), metadata=bearing(WATCHER))
        assert {queue.namespace for queue in told.queues} == {"mail"}
        assert not told.processes
        told = await api.metrics.Snapshot(m.SnapshotRequest(), metadata=bearing(AUDITOR))
        assert {queue.namespace for queue in told.queues} >= {"mail", "other"}
        assert told.processes
        some = api.metrics.Stream(m.StreamRequest(), metadata=bearing(WATCHER))
        for _ in range(3):
            response = await some.read()
            assert {queue.namespace for queue in response.queues} <= {"mail"}
            assert not response.processes
        some.cancel()
        foreign, mail = m.SnapshotRequest(namespace="other"), m.StreamRequest(namespace="other")
        for call in (
            api.metrics.Snapshot(foreign, metadata=bearing(WATCHER)),
            api.metrics.Stream(mail, metadata=bearing(WATCHER)).read(),
            api.metrics.Snapshot(m.SnapshotRequest(namespace="mail"), metadata=bearing(CLERK)),
            api.metrics.Stream(m.StreamRequest(namespace="mail"), metadata=bearing(CLERK)).read(),
        ):
            assert (await refused(call)).reason == "PERMISSION_DENIED"

    async def test_are_not_asked_for_where_health_is_checked(self, api: Api) -> None:
        assert (await api.health.Check(HealthCheckRequest())).status == HealthCheckResponse.SERVING

    async def test_are_bound_to_namespaces(self, api: Api) -> None:
        for namespace in ("mail", "mail-1"):
            await api.queues.Enqueue(enqueue(namespace), metadata=bearing(CLERK))
        for namespace in ("", "mailbox", "other"):
            answer = await refused(api.queues.Enqueue(enqueue(namespace), metadata=bearing(CLERK)))
            assert (answer.code, answer.reason) == (CODE.PERMISSION_DENIED, "PERMISSION_DENIED")

    async def test_are_bound_to_verbs(self, api: Api) -> None:
        request = q.DeleteQueueRequest(namespace="mail", queue="letters")
        assert (await refused(api.queues.DeleteQueue(request, metadata=bearing(CLERK)))).reason == "PERMISSION_DENIED"
        put = t.PutRowRequest(namespace="mail", table="stamps", create_if_missing=True)
        await api.tables.PutRow(put, metadata=bearing(CLERK))
        get = t.GetRowRequest(namespace="mail", table="stamps")
        assert (await refused(api.tables.GetRow(get, metadata=bearing(CLERK)))).reason == "PERMISSION_DENIED"
        answer = await refused(api.admin.GetInfo(a.GetInfoRequest(), metadata=bearing(CLERK)))
        assert answer.reason == "PERMISSION_DENIED"
        stream = api.events.Subscribe(e.SubscribeRequest(namespace="mail"), metadata=bearing(CLERK))
        assert (await refused(stream.read())).reason == "PERMISSION_DENIED"
        stream = api.tables.WatchRows(t.WatchRowsRequest(namespace="mail"), metadata=bearing(CLERK))
        assert (await refused(stream.read())).reason == "PERMISSION_DENIED"

    async def test_hold_for_each_operation_of_a_session(self, api: Api) -> None:
        stream = api.sessions.Session(metadata=bearing(CLERK))
        await stream.write(s.SessionRequest(open=s.SessionOpen(client="test")))
        operations = [
            s.SessionOperation(sequence=1, owner=1, enqueue=enqueue("mail")),
            s.SessionOperation(sequence=2, owner=1, enqueue=enqueue("other")),
            s.SessionOperation(sequence=3, owner=1, delete_queue=q.DeleteQueueRequest(namespace="mail")),
            s.SessionOperation(sequence=4, owner=1, delete_row=t.DeleteRowRequest(namespace="mail", table="stamps")),
        ]
        await stream.write(s.SessionRequest(operations=operations))
        results: dict[int, s.SessionResult] = {}
        while len(results) < len(operations):
            results |= {result.sequence: result for result in (await stream.read()).results}
        await stream.done_writing()
        assert results[1].HasField("enqueue")
        assert {results[number].failure.reason for number in (2, 3, 4)} == {Reason.REASON_PERMISSION_DENIED}

    async def test_open_no_session_when_unknown(self, api: Api) -> None:
        stream = api.sessions.Session(metadata=bearing("wrong"))
        assert (await refused(stream.read())).reason == "UNAUTHENTICATED"

    async def _is_known(self, api: Api, token: str) -> bool:
        try:
            await api.admin.GetInfo(a.GetInfoRequest(), metadata=bearing(token))
        except grpc.aio.AioRpcError as error:
            return error.code() is not CODE.UNAUTHENTICATED
        return True

    async def test_can_be_changed_while_the_core_runs(self, api: Api, folder: Path) -> None:
        info = a.GetInfoRequest()
        assert (await refused(api.admin.GetInfo(info, metadata=bearing(LATER)))).reason == "UNAUTHENTICATED"
        replace(folder / "tokens.toml", TOKENS + TOKENS.replace(CLERK, LATER).replace('"enqueue"', '"get_info"'))
        while not await self._is_known(api, LATER):
            pass

    async def test_stay_as_they_were_while_the_file_is_wrong(self, core: CorePart, api: Api, folder: Path) -> None:
        replace(folder / "tokens.toml", "[[token]]\nverbs = 7\n")
        while b"tokens_file_wrong" not in core.log.read_bytes():
            await api.admin.GetInfo(a.GetInfoRequest(), metadata=bearing(AUDITOR))
        await api.admin.GetInfo(a.GetInfoRequest(), metadata=bearing(AUDITOR))

    async def test_are_not_asked_for_on_the_unix_socket(self, core: CorePart) -> None:
        async with open_api(core.target) as api:
            await api.queues.Enqueue(enqueue("anything"))


def replace(path: Path, content: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(content)
    draft.replace(path)


def test_a_core_with_a_wrong_tokens_file_says_every_fault_and_ends(core: CorePart, folder: Path) -> None:
    other = CorePart(folder, RedisPart(folder), name="core-wrong")
    wrong = folder / "wrong.toml"
    wrong.write_text('[[token]]\nverbs = ["fly"]\nnamespaces = []\nsha256 = "12"\ncolour = "red"\n')
    other.environment = {"QUINTET_TOKENS_FILE": str(wrong)}
    other.start(wait=False)
    until(lambda: not other.is_running, "the core ends")
    log = other.log.read_text()
    for fault in ("verb 'fly' is unknown", "namespaces must be", "sha256 must be", "colour is unknown"):
        assert fault in log
    assert other._process is not None
    assert other._process.returncode == 78
    assert os.fspath(wrong) in log
