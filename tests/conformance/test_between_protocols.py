"""Jobs put through one protocol and taken through another; rows of tables through ZeroMQ and gRPC.

One real stack with every adapter. What rank, payload and id become is in docs/protocols.md.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import grpc
import pytest
from quintet.v1.job_pb2 import NewJob
from quintet.v1.queue_pb2 import QueueCounts, QueueSettings
from quintet.v1.queue_service_pb2 import CreateQueueRequest, EnqueueRequest, ReleaseRequest
from quintet.v1.queue_service_pb2_grpc import QueueServiceStub
from quintet.v1.reason_pb2 import Reason
from quintet.v1.table_service_pb2 import (
    TTL_CHANGE_SET,
    CreateTableRequest,
    DeleteRowRequest,
    DeleteTableRequest,
    GetRowRequest,
    PutRowRequest,
    ScanRowsRequest,
)
from quintet.v1.table_service_pb2_grpc import TableServiceStub

from tests.support.queue_tongues import TONGUES, Etzel, JobCentre, Taken, TaskFlux, Text, Tongue, as_dict
from tests.support.stack import AdapterPart, Stack, until
from tests.support.table_load import reason_of
from tests.support.taskflux import ACK, NACK, NO_LIMIT, Error, Ok, PolicyViolation, create
from tests.support.taskflux import enqueue as enqueue_packet
from tests.support.zmq_kv import DELETED as ROW_DELETED
from tests.support.zmq_kv import ERROR, OK, UPDATED, ReqClient, SubClient, notifications_of, requests_of

TEXT_LEASE_S = 2
ETZEL_LEASE_S = 5
NAMES = list(TONGUES)
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Body:
    """A payload, who can put it, and what JSON protocols show of it when it was not put as JSON."""

    source: bytes
    is_json: bool
    is_object: bool

    def put_as_json_by(self, tongue: str) -> bool:
        return tongue in ("job-centre", "etzel")

    def can_be_put_by(self, tongue: str) -> bool:
        if tongue == "job-centre":
            return self.is_object
        return self.is_json if tongue == "etzel" else True

    def shown_to(self, taker: str, putter: str) -> bytes | dict[str, str]:
        """Bytes as they are, or the object that stands for them."""
        if taker in ("text-queue", "taskflux"):
            return self.source
        if self.put_as_json_by(putter) and (taker == "etzel" or self.is_object):
            return self.source
        return wrapped(self.source)


def wrapped(source: bytes) -> dict[str, str]:
    """What stands for bytes in JSON."""
    try:
        return {"encoding": "utf-8", "data": source.decode()}
    except UnicodeDecodeError:
        return {"encoding": "base64", "data": base64.b64encode(source).decode()}


BODIES = {
    # Spelling that a re-encoding would lose: number, escapes, spaces, order and repetition of keys.
    "object": Body(rb'{"b": 1.50e+3,"a":"\u00e9\ud83d\ude00", "a" :[ ]}', True, True),
    "array": Body(rb'[1, 2.50, {"x":null}]', True, False),
    "string": Body('"a \\"quoted\\" é"'.encode(), True, False),
    "number": Body(b"-0.50", True, False),
    "text": Body("plain, with spaces and é\n and a new line".encode(), False, False),
    "almost JSON": Body(b'{"a": 1', False, False),
    "binary": Body(bytes(range(256)), False, False),
    "nothing": Body(b"", False, False),
}


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    """With every adapter in front of one core."""
    with Stack(QUINTET_LEASE_SECONDS=str(TEXT_LEASE_S)) as started:
        for protocol in ("taskflux", "etzel", "zmq-kv"):
            started.further_adapter(protocol).start()
        yield started


@pytest.fixture
def adapters(stack: Stack) -> dict[str, AdapterPart]:
    """By protocol."""
    found = [part for part in (*stack.adapters, *stack.extra) if isinstance(part, AdapterPart)]
    return {adapter.protocol: adapter for adapter in found}


Speak = Callable[[str], Tongue]


@pytest.fixture
def speak(adapters: dict[str, AdapterPart]) -> Iterator[Speak]:
    """Makes clients, each another, which are disconnected after the test."""
    with ExitStack() as opened:
        yield lambda name: TONGUES[name](opened, adapters[name])


@pytest.fixture
def api(stack: Stack) -> Iterator[QueueServiceStub]:
    """The core's own API of queues."""
    with grpc.insecure_channel(stack.core.target) as channel:
        yield QueueServiceStub(channel)


@pytest.fixture
def queue(api: QueueServiceStub) -> str:
    """A queue that is there already: TaskFlux creates none by putting. Its name is one that every protocol can say."""
    name = f"between-{next(_numbers)}"
    api.CreateQueue(CreateQueueRequest(queue=name))
    return name


def taken(tongue: Tongue, queue: str) -> Taken:
    """A job that must be there."""
    found = tongue.take(queue)
    assert found is not None, f"{tongue.name} finds nothing"
    return found


def taken_in_the_end(tongue: Tongue, queue: str) -> Taken:
    """A job that comes by itself."""
    found: list[Taken] = []

    def takes() -> bool:
        found.extend(filter(None, [tongue.take(queue)]))
        return bool(found)

    until(takes, f"{tongue.name} finds a job")
    return found[0]


def assert_empty(stack: Stack, queue: str) -> None:
    """Nothing is left of any job."""
    assert stack.counts(queue) == QueueCounts()


PAIRS_AND_BODIES = [
    (putter, taker, body)
    for putter in NAMES
    for taker in NAMES
    for body in BODIES
    if BODIES[body].can_be_put_by(putter)
]


@pytest.mark.parametrize(("putter", "taker", "body"), PAIRS_AND_BODIES)
def test_what_one_puts_another_takes_and_ends(
    stack: Stack, speak: Speak, queue: str, putter: str, taker: str, body: str
) -> None:
    put_id = speak(putter).put(queue, BODIES[body].source)
    client = speak(taker)
    found = taken(client, queue)
    shown = BODIES[body].shown_to(taker, putter)
    assert (found.body if isinstance(shown, bytes) else as_dict(found.body)) == shown
    assert found.rank in (0, None)
    assert (found.rank is None) == (taker in ("text-queue", "etzel"))
    if put_id is not None and found.job_id is not None:
        assert found.job_id == put_id
    assert stack.counts(queue) == QueueCounts(leased=1)
    assert speak(taker).take(queue) is None, "handed out twice"
    assert client.end(queue, found)
    assert_empty(stack, queue)
    assert client.take(queue) is None


@pytest.mark.parametrize("putter", NAMES)
def test_what_one_gives_up_comes_back_to_any(
    stack: Stack, speak: Speak, adapters: dict[str, AdapterPart], api: QueueServiceStub, putter: str
) -> None:
    """It takes a job for each other and disconnects; under a lease by time they come back when that has run out."""
    queues = {taker: f"between-{next(_numbers)}" for taker in NAMES}
    first: dict[str, Taken] = {}
    with ExitStack() as leaving:
        for taker, queue in queues.items():
            api.CreateQueue(CreateQueueRequest(queue=queue))
            client = TONGUES[putter](leaving, adapters[putter])
            if isinstance(client, Etzel):
                client.put(queue, b'{"n":1}', timeout=ETZEL_LEASE_S)
            else:
                client.put(queue, b'{"n":1}')
            first[taker] = taken(client, queue)
    for taker, queue in queues.items():
        other = speak(taker)
        again = taken_in_the_end(other, queue)
        assert _number_in(again.body) == 1
        if again.job_id is not None and first[taker].job_id is not None:
            assert again.job_id == first[taker].job_id
        assert other.end(queue, again)
        assert_empty(stack, queue)


@pytest.mark.parametrize("putter", ["job-centre", "taskflux"])
@pytest.mark.parametrize("taker", NAMES)
def test_ranks_are_the_same_order_in_every_tongue(speak: Speak, queue: str, putter: str, taker: str) -> None:
    source = speak(putter)
    ranks = [0, -(2**63), -5, 0, -1] if putter == "taskflux" else [0, -(2**63 - 1), -5, 0, -1]
    for number, rank in enumerate(ranks):
        source.put(queue, b'{"n":%d}' % number, rank)
    client = speak(taker)
    for number in sorted(range(len(ranks)), key=lambda number: ranks[number]):
        found = taken(client, queue)
        assert _number_in(found.body) == number
        assert found.rank in (ranks[number], None)
        client.end(queue, found)


def _number_in(body: bytes) -> int:
    """Of a JSON object, wrapped or not."""
    found = as_dict(body)
    return int((json.loads(found["data"]) if "data" in found else found)["n"])


def test_keys_of_taskflux_read_as_negated_priorities(speak: Speak, queue: str) -> None:
    """Also negative ones, and 2^63, which no put of Job Centre may say."""
    source, client = speak("taskflux"), speak("job-centre")
    for key in (-(2**63), -7, 0, 7, 2**63 - 1):
        source.put(queue, b"x", key)
        found = taken(client, queue)
        assert found.rank == key
        client.end(queue, found)


def test_line_ends_within_json_become_spaces_where_lines_carry_it(speak: Speak, api: QueueServiceStub) -> None:
    name = f"between-{next(_numbers)}"
    source = b'{"a":\n[1,\r\n 2]}'
    for tongue in NAMES:
        job = NewJob(payload=source, content_type="application/json; charset=utf-8")
        api.Enqueue(EnqueueRequest(queue=name, jobs=[job], create_if_missing=True))
        client = speak(tongue)
        found = taken(client, name)
        on_lines = tongue in ("job-centre", "etzel")
        assert found.body == (source.replace(b"\r", b" ").replace(b"\n", b" ") if on_lines else source)
        client.end(name, found)


@pytest.mark.parametrize("source", [b"", b'{"a":"\xff"}'], ids=["nothing", "not UTF-8"])
def test_what_cannot_be_json_is_wrapped_whatever_its_type_says(
    speak: Speak, api: QueueServiceStub, queue: str, source: bytes
) -> None:
    for name in ("job-centre", "etzel"):
        api.Enqueue(EnqueueRequest(queue=queue, jobs=[NewJob(payload=source, content_type="application/json")]))
        client = speak(name)
        found = taken(client, queue)
        assert as_dict(found.body) == wrapped(source)
        client.end(queue, found)


# --- ended by another meanwhile


@pytest.mark.parametrize("ender", ["text-queue", "job-centre", "etzel"])
@pytest.mark.parametrize("last_word", [ACK, NACK], ids=["Ack", "Nack"])
def test_taskflux_is_told_ok_of_a_record_that_another_ended(
    stack: Stack, speak: Speak, queue: str, ender: str, last_word: bytes
) -> None:
    job_id = speak("job-centre").put(queue, b"{}")
    holder = speak("taskflux")
    assert isinstance(holder, TaskFlux)
    taken(holder, queue)
    assert job_id is not None
    assert speak(ender).delete(queue, job_id)
    assert holder.client.ask(last_word) == Ok()
    assert_empty(stack, queue)


def test_taskflux_is_not_told_ok_of_a_record_that_was_given_back_for_it(
    stack: Stack, speak: Speak, queue: str, api: QueueServiceStub
) -> None:
    job_id = speak("job-centre").put(queue, b"{}")
    holder = speak("taskflux")
    assert isinstance(holder, TaskFlux)
    taken(holder, queue)
    api.Release(ReleaseRequest(id=job_id or 0, any_lease=True))
    assert holder.client.ask(ACK) == Error(0)
    assert stack.counts(queue) == QueueCounts(ready=1)


@pytest.mark.parametrize("ender", ["text-queue", "job-centre", "etzel"])
def test_others_are_told_of_a_job_that_another_ended(stack: Stack, speak: Speak, queue: str, ender: str) -> None:
    text, job_centre, etzel = speak("text-queue"), speak("job-centre"), speak("etzel")
    assert isinstance(job_centre, JobCentre)
    found = {}
    for holder in (text, job_centre, etzel):
        text.put(queue, b"x")
        found[holder.name] = taken(holder, queue)
    for each in found.values():
        assert each.job_id is not None
        assert speak(ender).delete(queue, each.job_id)
    assert text.end(queue, found["text-queue"]) is False
    assert job_centre.client.abort(found["job-centre"].job_id or 0) == "no-job"
    assert etzel.end(queue, found["etzel"]), "okack, whatever became of it"
    assert_empty(stack, queue)


# --- policies, which hold for every tongue


def test_policies_that_taskflux_sets_hold_for_every_tongue(speak: Speak) -> None:
    queue = f"between-{next(_numbers)}"
    setter, text, job_centre, etzel = (speak(name) for name in ("taskflux", "text-queue", "job-centre", "etzel"))
    assert isinstance(setter, TaskFlux)
    assert isinstance(text, Text)
    assert isinstance(job_centre, JobCentre)
    assert isinstance(etzel, Etzel)
    assert setter.client.ask(create(queue, 2, NO_LIMIT, 10, (-5, 5))) == Ok()
    assert text.client.add(queue, b"x" * 11).startswith(b"ERROR")
    line = {"request": "put", "queue": queue, "job": {}, "pri": 6}
    assert job_centre.client.ask(line)["status"] == "error"
    assert job_centre.client.ask({**line, "pri": 0, "job": {"long": "enough"}})["status"] == "error"
    answer = etzel.client.ask({"cmd": "PUB", "qname": queue, "message": "x" * 11})
    assert (answer["cmd"], answer["err"]) == ("nok", "BAD_REQUEST")
    assert setter.client.ask(enqueue_packet(queue, 6, b"")) == Ok(), "checked when it is acknowledged"
    assert isinstance(setter.client.ask(ACK), PolicyViolation)
    assert text.take(queue) is None
    text.put(queue, b"x" * 10)
    assert taken(setter, queue).body == b"x" * 10


def test_a_full_queue_is_full_for_every_tongue(speak: Speak, api: QueueServiceStub) -> None:
    queue = f"between-{next(_numbers)}"
    api.CreateQueue(CreateQueueRequest(queue=queue, settings=QueueSettings(jobs_max=0)))
    text, job_centre, taskflux, etzel = (speak(name) for name in NAMES)
    assert isinstance(text, Text)
    assert isinstance(job_centre, JobCentre)
    assert isinstance(taskflux, TaskFlux)
    assert isinstance(etzel, Etzel)
    assert text.client.add(queue, b"x").startswith(b"ERROR")
    assert job_centre.client.ask({"request": "put", "queue": queue, "job": {}, "pri": 0})["status"] == "error"
    assert taskflux.client.put(queue, b"x") == PolicyViolation(1, (0,))
    assert etzel.client.ask({"cmd": "PUB", "qname": queue, "message": 1})["err"] == "REFUSED"


# --- one scenario through all tongues


def test_a_day_in_the_life_of_a_queue_that_all_tongues_share(stack: Stack, speak: Speak, queue: str) -> None:
    """Delay, priority, the end of a lease, release and delete, each through every tongue that has the word, while the
    others look on."""
    text, job_centre, taskflux, etzel = (speak(name) for name in NAMES)
    assert isinstance(etzel, Etzel)

    # Delay: Etzel says it; until it is over nobody finds the job.
    delayed = etzel.put(queue, b'{"n":0}', delay=3600)
    assert stack.counts(queue) == QueueCounts(delayed=1)
    assert [tongue.take(queue) for tongue in (text, job_centre, taskflux, etzel)] == [None] * 4
    assert delayed is not None
    assert job_centre.delete(queue, delayed), "one tongue deletes what another has delayed"
    soon = etzel.put(queue, b'{"n":0}', delay=0.3)
    found = taken_in_the_end(taskflux, queue)
    assert found.body == b'{"n":0}'
    assert taskflux.end(queue, found)
    assert soon is not None

    # Priority: Job Centre and TaskFlux say it, and all take in its order.
    text.put(queue, b'{"n":3}')
    etzel.put(queue, b'{"n":4}')
    taskflux.put(queue, b'{"n":2}', -1)
    job_centre.put(queue, b'{"n":1}', -2)
    taskflux.put(queue, b'{"n":5}', 1)
    first = taken(etzel, queue)
    assert _number_in(first.body) == 1
    second = taken(text, queue)
    assert _number_in(second.body) == 2

    # Release: abort puts it back to its place, Nack to the tail of its key.
    third = taken(job_centre, queue)
    assert _number_in(third.body) == 3
    job_centre.give_back(queue, third)
    assert taken(job_centre, queue) == third
    job_centre.give_back(queue, third)
    again = taken(taskflux, queue)
    assert _number_in(again.body) == 3
    taskflux.give_back(queue, again)
    fourth = taken(taskflux, queue)
    assert _number_in(fourth.body) == 4, "the third went behind it"
    assert taskflux.end(queue, fourth)

    # The end of a lease: of the text queue by time, into its place, which is ahead of all others.
    until(lambda: stack.counts(queue).leased == 1, "the lease of the text queue runs out")
    back = taken(job_centre, queue)
    assert (back.job_id, _number_in(back.body)) == (second.job_id, 2)
    assert text.end(queue, Taken(b"", second.job_id)), "a late ACK acknowledges the lease that holds it now"
    assert job_centre.end(queue, back) is False

    # Delete: everybody ends something.
    assert etzel.end(queue, first)
    last = [taken(text, queue), taken(taskflux, queue)]
    assert [_number_in(each.body) for each in last] == [3, 5]
    assert text.end(queue, last[0])
    assert taskflux.end(queue, last[1])
    assert_empty(stack, queue)


@pytest.mark.parametrize("putter", NAMES)
def test_whoever_waits_is_woken_by_any_tongue(speak: Speak, queue: str, putter: str) -> None:
    sleeper, waiter = speak("etzel"), speak("job-centre")
    assert isinstance(sleeper, Etzel)
    assert isinstance(waiter, JobCentre)
    sleeper.client.subscribe(queue)
    sleeper.client.sleep(queue)
    speak(putter).put(queue, b'{"n":1}')
    assert sleeper.client.awake() == queue
    assert waiter.client.get(queue, wait=True)["status"] == "ok"
    waiter.client.send({"request": "get", "queues": [queue], "wait": True})
    speak(putter).put(queue, b'{"n":2}')
    assert waiter.client.read()["status"] == "ok"


# --- tables


@pytest.fixture
def rows(stack: Stack) -> Iterator[TableServiceStub]:
    """The core's own API of tables."""
    with grpc.insecure_channel(stack.core.target) as channel:
        yield TableServiceStub(channel)


@pytest.fixture
def req(adapters: dict[str, AdapterPart]) -> Iterator[ReqClient]:
    with ReqClient(requests_of(adapters["zmq-kv"])) as client:
        yield client


@pytest.fixture
def table(req: ReqClient) -> str:
    """A table that ZeroMQ made."""
    name = f"table-{next(_numbers)}"
    assert req.create_table(name.encode()) == [OK]
    return name


def test_zeromq_and_grpc_see_the_same_rows(rows: TableServiceStub, req: ReqClient, table: str) -> None:
    name, key = table.encode(), b"\x00key"
    assert req.update(name, key, b"one") == [OK]
    row = rows.GetRow(GetRowRequest(table=table, key=key)).row
    assert (row.value, row.expires_at_ms) == (b"one", 0)
    put = rows.PutRow(PutRowRequest(table=table, key=key, value=b"two", expected_version=row.version))
    assert (put.created, put.version > row.version) == (False, True)
    assert req.get(name, key) == [OK, b"two"]
    assert req.update(name, b"other", b"three", 3600) == [OK]
    other = rows.GetRow(GetRowRequest(table=table, key=b"other")).row
    assert other.expires_at_ms > 0
    assert [row.key for row in rows.ScanRows(ScanRowsRequest(table=table)).rows] == [key, b"other"]
    assert req.delete(name, key) == [OK, b"two"]
    assert req.get(name, key)[0] == ERROR
    assert rows.DeleteRow(DeleteRowRequest(table=table, key=b"other")).row == other
    assert req.delete(name, b"other")[0] == ERROR


def test_a_version_that_zeromq_overwrote_is_refused(rows: TableServiceStub, req: ReqClient, table: str) -> None:
    version = rows.PutRow(PutRowRequest(table=table, key=b"k", value=b"one")).version
    req.update(table.encode(), b"k", b"two")
    with pytest.raises(grpc.RpcError) as refused:
        rows.PutRow(PutRowRequest(table=table, key=b"k", value=b"three", expected_version=version))
    assert reason_of(refused.value) == Reason.REASON_VERSION_MISMATCH
    assert req.get(table.encode(), b"k") == [OK, b"two"]


def test_a_row_that_expires_is_gone_for_both_at_once(rows: TableServiceStub, req: ReqClient, table: str) -> None:
    request = PutRowRequest(table=table, key=b"k", value=b"x", ttl_change=TTL_CHANGE_SET, ttl_ms=300)
    rows.PutRow(request)
    until(lambda: req.get(table.encode(), b"k")[0] == ERROR, "its time is over")
    with pytest.raises(grpc.RpcError) as refused:
        rows.GetRow(GetRowRequest(table=table, key=b"k"))
    assert reason_of(refused.value) == Reason.REASON_ROW_NOT_FOUND


def test_tables_are_made_and_deleted_by_either(rows: TableServiceStub, req: ReqClient) -> None:
    name = f"table-{next(_numbers)}"
    rows.CreateTable(CreateTableRequest(table=name))
    assert req.create_table(name.encode())[0] == ERROR
    assert req.update(name.encode(), b"k", b"x") == [OK]
    assert rows.DeleteTable(DeleteTableRequest(table=name)).rows == 1
    assert req.get(name.encode(), b"k")[0] == ERROR
    assert req.create_table(name.encode()) == [OK]
    assert req.get(name.encode(), b"k")[0] == ERROR
    assert req.delete_table(name.encode()) == [OK]
    with pytest.raises(grpc.RpcError) as refused:
        rows.GetRow(GetRowRequest(table=name, key=b"k"))
    assert reason_of(refused.value) == Reason.REASON_TABLE_NOT_FOUND


def test_changes_through_grpc_are_notified_by_zeromq(
    rows: TableServiceStub, adapters: dict[str, AdapterPart], table: str
) -> None:
    name = table.encode()
    with SubClient(notifications_of(adapters["zmq-kv"]), name) as sub:
        rows.PutRow(PutRowRequest(table=table, key=b"a", value=b"x"))
        rows.PutRow(PutRowRequest(table=table, key=b"b", value=b"x", ttl_change=TTL_CHANGE_SET, ttl_ms=100))
        assert sub.hear(3) == [(name, UPDATED, b"a"), (name, UPDATED, b"b"), (name, ROW_DELETED, b"b")]
        rows.DeleteTable(DeleteTableRequest(table=table))
        assert sub.hear(1) == [(name, ROW_DELETED, b"a")]


def test_a_queue_and_a_table_of_one_name_are_two_things(
    speak: Speak, rows: TableServiceStub, req: ReqClient, queue: str, stack: Stack
) -> None:
    text = speak("text-queue")
    text.put(queue, b"job")
    assert req.create_table(queue.encode()) == [OK]
    assert req.update(queue.encode(), b"k", b"row") == [OK]
    assert rows.DeleteTable(DeleteTableRequest(table=queue)).rows == 1
    assert taken(text, queue).body == b"job"
    assert stack.counts(queue) == QueueCounts(leased=1)
