"""Messages to plain data and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet.v1 import job_pb2, queue_pb2
from quintet.v1 import queue_service_pb2 as q
from quintet_core.domain.errors import CallerError
from quintet_core.domain.job import Job, JobState, Lease, Placement
from quintet_core.domain.outcomes import Dequeued, Enqueued, JobPage, Released
from quintet_core.domain.queue import PauseDirection, QueueSettings
from quintet_core.rpc import convert

INT64 = st.integers(-(2**63), 2**63 - 1)
SPAN = st.integers(0, 2**53)
TEXT = st.text(max_size=20)
ATTRIBUTES = st.dictionaries(TEXT, TEXT, max_size=3)
LEASES = st.none() | st.builds(Lease, st.integers(1, 2**53), SPAN, TEXT)
JOBS = st.builds(
    Job, SPAN, TEXT, TEXT, st.binary(max_size=50), TEXT, INT64, st.sampled_from(JobState), SPAN, SPAN, SPAN,
    st.integers(0, 2**31), st.integers(0, 2**31), TEXT, LEASES, TEXT, ATTRIBUTES, st.integers(0, 2**31),
)  # fmt: skip
SETTINGS = st.builds(
    QueueSettings, st.integers(0, 2), st.none() | SPAN, st.none() | SPAN, st.none() | st.tuples(INT64, INT64), SPAN,
    st.integers(0, 2**31), SPAN, SPAN, TEXT, TEXT,
)  # fmt: skip


@given(JOBS)
def test_a_job_is_told_with_everything_it_has(told: Job) -> None:
    message = convert.job(told)
    lease = Lease(message.lease.token, message.lease.deadline_at_ms, message.lease.worker)
    assert told == Job(
        message.id, message.namespace, message.queue, message.payload, message.content_type, message.rank,
        JobState(message.state), message.enqueued_at_ms, message.available_at_ms, message.expires_at_ms,
        message.attempts, message.attempts_max, message.failure_reason, lease if message.HasField("lease") else None,
        message.deduplication_key, dict(message.attributes), message.payload_bytes,
    )  # fmt: skip


@given(SETTINGS)
def test_settings_come_back_as_they_went(settings: QueueSettings) -> None:
    assert convert.settings_of(convert.settings(settings)) == settings


def test_limits_of_zero_are_not_absent() -> None:
    settings = convert.settings_of(queue_pb2.QueueSettings(jobs_max=0))
    assert (settings.jobs_max, settings.payload_bytes_max, settings.rank_range) == (0, None, None)


def test_a_new_job_has_every_field() -> None:
    message = job_pb2.NewJob(
        payload=b"p",
        content_type="c",
        rank=-1,
        delay_ms=1,
        time_to_live_ms=2,
        deduplication_key="k",
        deduplication_window_ms=3,
        attempts_max=4,
        lease_ms=5,
        attributes={"a": "b"},
    )
    (job,) = convert.new_jobs(q.EnqueueRequest(jobs=[message]))
    assert {name: getattr(job, name) for name in message.DESCRIPTOR.fields_by_name} == {
        field.name: getattr(message, field.name) for field, _ in message.ListFields()
    }


def test_requests_name_a_token_and_a_queue_or_none() -> None:
    assert convert.token_of(q.AcknowledgeRequest(token=7)) == 7
    assert convert.token_of(q.AcknowledgeRequest(token=7, any_lease=True)) is None
    assert convert.queue_of(q.AcknowledgeRequest()) is None
    assert convert.queue_of(q.AcknowledgeRequest(queue="")) == ""


def test_what_is_unspecified_has_a_meaning() -> None:
    assert convert.placement(0) is Placement.ORIGINAL
    assert convert.job_state(0, JobState.READY) is JobState.READY
    assert convert.redriven_state(0) is JobState.DEAD
    assert convert.pause_direction(0) is PauseDirection.BOTH
    assert convert.purged_states([]) == []
    assert convert.jobs_cursor("") is None
    assert convert.queues_cursor("") is None


@pytest.mark.parametrize("number", [-1, 9])
def test_numbers_that_mean_nothing_are_refused(number: int) -> None:
    for read in (
        convert.placement,
        convert.redriven_state,
        convert.pause_direction,
        lambda value: convert.job_state(value, JobState.READY),
        lambda value: convert.purged_states([value]),
    ):
        with pytest.raises(CallerError):
            read(number)


def test_cursors_come_back_from_their_tokens() -> None:
    page = convert.jobs_listed(JobPage([], (b"1.5", b"\x00\xffplace")))
    assert convert.jobs_cursor(page.next_page_token) == (b"1.5", b"\x00\xffplace")
    assert convert.jobs_listed(JobPage([], None)).next_page_token == ""
    queues = convert.queues_listed(([], "Grüße"))
    assert convert.queues_cursor(queues.next_page_token) == "Grüße"
    assert convert.queues_cursor(convert.queues_listed(([], "")).next_page_token) == ""


def test_outcomes_become_responses() -> None:
    assert list(convert.enqueued(Enqueued([1, 2], [2])).deduplicated_ids) == [2]
    assert list(convert.enqueued(Enqueued([1, 2], [])).ids) == [1, 2]
    assert not convert.dequeued(Dequeued([])).jobs
    assert int(convert.released(Released(JobState.DEAD)).state) == JobState.DEAD
    assert convert.released(Released(None)).state == 0
