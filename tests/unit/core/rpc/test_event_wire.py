"""Events that are encoded by hand mean what the generated classes say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from quintet.v1.table_service_pb2 import WatchRowsResponse
from quintet_core.domain.event import Event, EventKind
from quintet_core.rpc import convert
from quintet_core.rpc.event_wire import encode_event, encode_offsets

U32, I63 = 2**32 - 1, 2**63 - 1

# Lengths at which a varint grows, and at which the table of short lengths ends.
sizes = st.sampled_from([0, 1, 127, 128, 4095, 4096, 16_383, 16_384])
texts = st.text(max_size=60) | st.sampled_from(["", "é" * 2000, "x" * 4096, "\0"])
data = st.binary(max_size=300) | sizes.map(bytes)
offsets = st.integers(1, 2**53) | st.sampled_from([127, 128, I63])
instants = st.integers(0, 2**53) | st.sampled_from([0, I63])
of_tables = st.builds(
    Event,
    partition=st.integers(0, U32),
    offset=offsets,
    kind=st.sampled_from(list(EventKind)),
    at_ms=instants,
    namespace=texts,
    queue=st.just(""),
    job_id=st.just(0),
    rank=st.just(0),
    attempt=st.just(0),
    wait_ms=st.just(0),
    service_ms=st.just(0),
    payload_bytes=st.integers(0, U32) | sizes,
    state=st.just(0),
    detail=texts,
    table=texts,
    key=data,
    expires_at_ms=instants,
    value=st.none() | data,
)
of_queues = st.builds(
    Event,
    partition=st.integers(0, U32),
    offset=offsets,
    kind=st.integers(1, 24),
    at_ms=instants,
    namespace=texts,
    queue=texts,
    job_id=instants,
    rank=st.integers(-(2**63), I63),
    attempt=st.integers(0, U32),
    wait_ms=instants,
    service_ms=instants,
    payload_bytes=st.integers(0, U32),
    state=st.integers(0, 4),
    detail=texts,
)


@given(st.lists(of_tables | of_queues, max_size=4))
def test_events_are_the_same_by_hand(events: list[Event]) -> None:
    response = WatchRowsResponse.FromString(b"".join(map(encode_event, events)))
    assert list(response.changes) == list(map(convert.event, events))


@given(st.dictionaries(st.integers(0, U32), st.integers(0, I63), max_size=5))
def test_offsets_are_the_same_by_hand(told: dict[int, int]) -> None:
    response = WatchRowsResponse.FromString(encode_offsets(told.items()))
    assert {offset.partition: offset.after_offset for offset in response.offsets} == told
    assert not response.changes
