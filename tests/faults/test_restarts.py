"""What a restart of one part leaves to the clients of the others."""

from __future__ import annotations

import json

import grpc
from quintet.v1.job_pb2 import JOB_STATE_READY, Job
from quintet.v1.queue_service_pb2 import GetJobRequest
from quintet.v1.queue_service_pb2_grpc import QueueServiceStub

from tests.faults.conftest import NewClient, served_again
from tests.support.clients import TextClient
from tests.support.stack import Stack, until


def job(stack: Stack, job_id: int) -> Job:
    """As the core tells it."""
    with grpc.insecure_channel(stack.core.target) as channel:
        return QueueServiceStub(channel).GetJob(GetJobRequest(id=job_id, without_payload=True)).job


class TestTheCore:
    def test_leaves_a_client_its_jobs_to_delete_and_to_abort(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        worker, other = new_client(stack.job_centre.address), new_client(stack.job_centre.address)
        ids = [worker.put(queue) for _ in range(2)]
        assert [worker.get(queue)["id"] for _ in ids] == ids
        stack.core.restart()
        served_again(other, f"{queue}-other")
        assert other.get(queue)["status"] == "no-job"
        assert worker.delete(ids[0]) == "ok"
        assert worker.abort(ids[1]) == "ok"
        assert other.get(queue)["id"] == ids[1]

    def test_answers_a_wait_with_an_error_and_leaves_the_waiting_client_its_job(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        worker, other = new_client(stack.job_centre.address), new_client(stack.job_centre.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        worker.send({"request": "get", "queues": [queue], "wait": True})
        assert worker.is_silent()
        stack.core.restart()
        assert worker.read()["status"] == "error"
        served_again(other, f"{queue}-other")
        assert worker.get(queue)["status"] == "no-job"
        assert other.get(queue)["status"] == "no-job"
        assert worker.delete(held) == "ok"


class TestRedis:
    def test_leaves_a_client_its_jobs(self, stack: Stack, queue: str, new_client: NewClient) -> None:
        worker, other = new_client(stack.job_centre.address), new_client(stack.job_centre.address)
        ids = [worker.put(queue) for _ in range(2)]
        assert [worker.get(queue)["id"] for _ in ids] == ids
        stack.redis.restart()
        served_again(other, f"{queue}-other")
        assert other.get(queue)["status"] == "no-job"
        assert worker.delete(ids[0]) == "ok"
        assert worker.abort(ids[1]) == "ok"
        assert other.get(queue)["id"] == ids[1]

    def test_gives_back_the_jobs_of_a_client_that_left_meanwhile(
        self, stack: Stack, queue: str, new_client: NewClient
    ) -> None:
        worker, other = new_client(stack.job_centre.address), new_client(stack.job_centre.address)
        held = worker.put(queue)
        assert worker.get(queue)["id"] == held
        connections = stack.job_centre.metrics()["quintet_adapter_connections"]
        stack.redis.kill9()
        worker.close()
        until(lambda: stack.job_centre.metrics()["quintet_adapter_connections"] < connections, "the client has left")
        stack.redis.start()
        served_again(other, f"{queue}-other")
        assert other.get(queue, wait=True)["id"] == held

    def test_wakes_who_waited_before_it_was_away(self, stack: Stack, queue: str, new_client: NewClient) -> None:
        waiting, other = new_client(stack.job_centre.address), new_client(stack.job_centre.address)
        waiting.send({"request": "get", "queues": [queue], "wait": True})
        assert waiting.is_silent()
        stack.redis.restart()
        served_again(other, f"{queue}-other")
        job_id = other.put(queue)
        answer = waiting.read()
        if answer["status"] == "error":
            answer = waiting.get(queue, wait=True)
        assert answer["id"] == job_id


class TestAnAdapter:
    def test_that_dies_leaves_what_was_put(self, stack: Stack, queue: str, new_client: NewClient) -> None:
        text = TextClient(stack.text_queue.address)
        job_id = text.add(queue, b"hello")
        stack.text_queue.restart()
        assert text.get(queue) == (job_id, b"hello")


class TestLeasesOfTheTextQueue:
    def test_keep_their_deadline_over_a_restart_of_everything(self, stack: Stack, queue: str) -> None:
        text = TextClient(stack.text_queue.address)
        job_id = text.add(queue, b"hello")
        assert text.get(queue) == (job_id, b"hello")
        before = job(stack, int(job_id, 16))
        stack.kill9()
        stack.start()
        after = job(stack, int(job_id, 16))
        assert (after.lease.deadline_at_ms, after.attempts) == (before.lease.deadline_at_ms, 1)
        assert text.get(queue) is None
        assert text.is_in(queue, job_id) == b"YES"
        assert text.ack(queue, job_id) == b"OK"

    def test_run_out_while_everything_is_down(self, stack: Stack, queue: str) -> None:
        stack.text_queue.environment["QUINTET_LEASE_SECONDS"] = "1"
        stack.text_queue.restart()
        text = TextClient(stack.text_queue.address)
        del stack.text_queue.environment["QUINTET_LEASE_SECONDS"]
        first, second = text.add(queue, b"first"), text.add(queue, b"second")
        assert text.get(queue) == (first, b"first")
        stack.kill9()
        stack.start()
        until(lambda: job(stack, int(first, 16)).state == JOB_STATE_READY, "the lease has run out")
        assert [text.get(queue), text.get(queue)] == [(first, b"first"), (second, b"second")]


def test_ids_go_on_after_everything_was_killed(stack: Stack, queue: str, new_client: NewClient) -> None:
    client = new_client(stack.job_centre.address)
    ids = [client.put(queue) for _ in range(5)]
    for job_id in ids:
        assert client.delete(job_id) == "ok"
    stack.kill9()
    stack.start()
    text = TextClient(stack.text_queue.address)
    assert int(text.add(queue, json.dumps({}).encode()), 16) > max(ids)
