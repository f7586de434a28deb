"""Who follows the log: what is told to whom, from where on, and how it ends."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from quintet.v1.event_pb2 import EventKind
from quintet_core.domain.errors import Reason, Refusal, refusal
from quintet_core.watching import watcher as watcher_module
from quintet_core.watching import watches as watches_module
from quintet_core.watching.interest import RowInterest

from tests.support.followed import NAMESPACE, Followed, Listener, open_followed
from tests.support.redis_server import RedisConnection, RedisServer, prepare


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%05d" % number for number in range(start, start + count)]


def sibling(followed: Followed, name: str) -> str:
    """Another name of the same partition."""
    return next(
        other for other in (f"s{n}" for n in range(10_000)) if followed.partition(other) == followed.partition(name)
    )


class TestWhatIsTold:
    async def test_are_the_changes_of_rows_in_the_order_of_their_commit(self, followed: Followed) -> None:
        listener = await followed.watch("t")
        await listener.hear(await followed.put("t", *numbered(50)))
        assert listener.keys == numbered(50)
        assert listener.events[0].kind == EventKind.EVENT_KIND_TABLE_CREATED
        assert {event.kind for event in listener.events[1:]} == {EventKind.EVENT_KIND_ROW_PUT}
        assert all(one.offset + 1 == other.offset for one, other in pairwise(listener.events))

    async def test_begins_with_where_every_partition_is(self, followed: Followed) -> None:
        before = await followed.put("t", b"before")
        listener = await followed.watch()
        assert len(listener.offsets) == followed.partitions
        assert listener.offsets.items() >= before.items()
        assert not listener.events

    async def test_are_the_tables_that_were_named_and_no_others(self, followed: Followed) -> None:
        near = sibling(followed, "t")
        listener = await followed.watch("t", "u")
        await followed.put(near, b"other")
        ends = await followed.put("t", b"1")
        await followed.put("t", b"elsewhere", namespace="m")
        await followed.enqueue("t")
        await listener.hear(ends | await followed.put("u", b"2"))
        assert listener.keys == [b"1", b"2"]

    async def test_are_those_that_begin_with_the_prefix_and_all_of_the_table_itself(self, followed: Followed) -> None:
        listeners = [await followed.watch("t", prefix=prefix) for prefix in (b"a", b"ab", b"b", b"")]
        keys = [b"a", b"b", b"ab", b"abc", b"\xff"]
        ends = await followed.put("t", *keys)
        for listener in listeners:
            await listener.hear(ends)
        assert [listener.keys for listener in listeners] == [[b"a", b"ab", b"abc"], [b"ab", b"abc"], [b"b"], keys]
        assert {listener.events[0].kind for listener in listeners} == {EventKind.EVENT_KIND_TABLE_CREATED}

    async def test_are_tables_to_come_where_none_is_named(self, followed: Followed) -> None:
        listener = await followed.watch()
        ends: dict[int, int] = {}
        for number in range(40):
            ends |= await followed.put(f"t{number}", b"%d" % number)
        await listener.hear(ends)
        assert sorted(listener.keys, key=int) == [b"%d" % number for number in range(40)]

    async def test_of_one_call_are_told_each_to_whom_it_concerns(self, followed: Followed) -> None:
        near = sibling(followed, "t")
        listeners = [await followed.watch(name) for name in ("t", near)]
        await followed.live(*listeners)
        followed.put_together("t", *numbered(20))
        followed.put_together(near, *numbered(20, 50))
        await followed.put_together("t", *numbered(20, 20))
        ends = await followed.ends(followed.partition("t"))
        for listener in listeners:
            await listener.hear(ends)
        assert [listener.keys for listener in listeners] == [numbered(40), numbered(20, 50)]

    async def test_carries_values_where_the_table_says_so(self, followed: Followed) -> None:
        await followed.create("t", events_carry_values=True)
        await followed.put("u", b"k", value=b"not carried")
        listener = await followed.watch("t", "u")
        ends = await followed.put("t", b"k", value=b"carried") | await followed.put("u", b"k", value=b"not carried")
        events = await listener.hear(ends)
        assert {(event.table, event.HasField("value"), event.value) for event in events} == {
            ("t", True, b"carried"),
            ("u", False, b""),
        }

    async def test_says_how_far_it_is_when_nothing_concerns_it(
        self, followed: Followed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(watches_module, "PROGRESS_S", 0.01)
        listener = await followed.watch("t")
        await listener.hear(await followed.enqueue(sibling(followed, "t"), 100))
        assert not listener.events

    async def test_is_heard_of_other_cores(self, followed: Followed, other: Followed) -> None:
        listener = await followed.watch("t")
        await listener.hear(await other.put("t", b"k"))
        assert listener.keys == [b"k"]

    async def test_is_told_to_many_for_the_work_of_one(self, followed: Followed) -> None:
        listeners = [await followed.watch("t") for _ in range(100)]
        ends = await followed.put("t", *numbered(20))
        await asyncio.gather(*(listener.hear(ends) for listener in listeners))
        assert {tuple(listener.keys) for listener in listeners} == {tuple(numbered(20))}
        assert sum(followed.told) == 100 * 21
        assert len({id(watcher) for watcher in followed.watches._watchers}) == 100


class TestSubscriptions:
    async def test_are_told_everything_of_their_namespaces(self, followed: Followed) -> None:
        listener = await followed.subscribe("a", "b")
        ends: dict[int, int] = {}
        for namespace in ("a", "b", "c"):
            ends |= await followed.enqueue("q", 2, namespace) | await followed.put("t", b"k", namespace=namespace)
        await listener.hear(ends)
        assert {event.namespace for event in listener.events} == {"a", "b"}
        assert len(listener.events) == 2 * (3 + 2)

    async def test_may_begin_with_the_oldest_event(self, followed: Followed) -> None:
        ends = await followed.enqueue("q", 3)
        listener = await followed.subscribe(NAMESPACE, from_earliest=True)
        assert len(await listener.hear(ends)) == 4

    async def test_may_begin_behind_the_end(self, followed: Followed) -> None:
        partition = followed.partition("q")
        listener = await followed.subscribe(NAMESPACE, starts={partition: 3})
        await listener.hear(await followed.enqueue("q", 5))
        assert [event.offset for event in listener.events] == [4, 5, 6]

    async def test_and_watches_share_the_live_end(self, followed: Followed) -> None:
        ahead = await followed.subscribe(NAMESPACE, starts={followed.partition("t"): 4})
        watch, subscription = await followed.watch("t"), await followed.subscribe(NAMESPACE)
        ends = await followed.put("t", *numbered(6))
        for listener in (ahead, watch, subscription):
            await listener.hear(ends)
        assert [len(listener.events) for listener in (ahead, watch, subscription)] == [3, 7, 7]


class TestResuming:
    async def test_at_every_point_leaves_no_gap_and_repeats_nothing(self, followed: Followed) -> None:
        """Also in the midst of a call's events."""
        followed.put_together("t", *numbered(10))
        await followed.put_together("t", *numbered(10, 10))
        ends = await followed.put("t", *numbered(10, 20))
        ((partition, last),) = ends.items()
        for start in range(last + 1):
            listener = await followed.watch("t", starts={partition: start})
            events = await listener.hear(ends)
            assert [event.offset for event in events] == list(range(start + 1, last + 1))
            listener.close()

    async def test_while_changes_go_on_leaves_no_gap_and_repeats_nothing(self, followed: Followed) -> None:
        partition = followed.partition("t")
        listeners: list[tuple[int, Listener]] = []

        async def write() -> None:
            for number in range(0, 600, 20):
                await followed.put_together("t", *numbered(20, number))

        writing = asyncio.ensure_future(write())
        while not writing.done():
            start = max(0, (await followed.ends(partition))[partition] - 30)
            listeners.append((start, await followed.watch("t", starts={partition: start})))
        ends = await followed.ends(partition)
        for start, listener in listeners:
            events = await listener.hear(ends)
            assert [event.offset for event in events] == list(range(start + 1, ends[partition] + 1))
        assert len(listeners) > 3

    async def test_where_the_log_no_longer_holds_it_is_refused(self, followed: Followed) -> None:
        ends = await followed.put("t", *numbered(10))
        ((partition, last),) = ends.items()
        await followed.store.trim_events(partition, 3, 1000)
        interest = RowInterest(NAMESPACE, frozenset(("t",)))
        for start in (0, last - 4, last + 1):
            refused = await followed.watches.open(interest, [partition], {partition: start})
            assert isinstance(refused, Refusal)
            assert refused.reason is Reason.OFFSET_TRIMMED
        assert isinstance(refused, Refusal)
        assert refused.metadata == {
            "partition": str(partition), "first_offset": str(last - 2), "last_offset": str(last),
        }  # fmt: skip
        listener = await followed.watch("t", starts={partition: last - 3})
        assert len(await listener.hear(ends)) == 3

    async def test_that_comes_too_late_ends(self, followed: Followed) -> None:
        """The log is trimmed between the opening and the first read."""
        ((partition, _),) = (await followed.put("t", *numbered(10))).items()
        interest = RowInterest(NAMESPACE, frozenset(("t",)))
        listener = await followed.open(interest, [partition], {partition: 2})
        followed.store.submit(partition, "trim_events", [1, 1000], lambda _: None)
        assert await listener.reason() is Reason.OFFSET_TRIMMED


class TestSlowOnes:
    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(watcher_module, "BUFFER_BYTES_MAX", 2000)

    async def test_read_the_log_again_and_miss_nothing(self, followed: Followed) -> None:
        slow, fast = await followed.watch("t"), await followed.watch("t")
        await followed.live(slow, fast)
        for number in range(0, 500, 10):
            await followed.put_together("t", *numbered(10, number))
            ends = await followed.ends(followed.partition("t"))
            await fast.hear(ends)
        assert followed.fallen
        assert slow.watcher._bytes <= 2000
        await slow.hear(ends)
        assert slow.keys == fast.keys == numbered(500)
        await followed.live(slow)
        await slow.hear(await followed.put("t", b"last"))
        assert slow.keys[-1] == b"last"

    async def test_that_come_back_too_late_are_told(self, followed: Followed) -> None:
        slow = await followed.watch("t")
        await followed.live(slow)
        while not slow.watcher.behind:
            await followed.put_together("t", *numbered(10))
        ((partition, _),) = (await followed.put("t", *numbered(20))).items()
        await followed.store.trim_events(partition, 1, 1000)
        assert await slow.reason() is Reason.OFFSET_TRIMMED

    async def test_are_told_of_changes_larger_than_all_that_may_wait(self, followed: Followed) -> None:
        await followed.create("t", events_carry_values=True)
        listener = await followed.watch("t")
        for number in range(5):
            ends = await followed.put("t", b"%d" % number, value=b"x" * 5000)
        await listener.hear(ends)
        assert [len(event.value) for event in listener.events] == [5000] * 5

    async def test_cost_no_reading_while_there_is_no_room(self, followed: Followed) -> None:
        """Also when a little more would have room, but not what comes next."""
        await followed.create("t", events_carry_values=True)
        slow = await followed.watch("t")
        await followed.live(slow)
        await followed.put("t", b"small", value=b"x" * 500)
        ends = await followed.put("t", b"large", value=b"x" * 1900)
        while not slow.watcher.behind:
            await asyncio.sleep(0.001)
        for _ in range(5):
            await followed.ends(0)  # what it has begun to read comes back meanwhile
        before = len(followed.recorder.batches)
        for _ in range(20):
            await followed.ends(0)
        assert followed.recorder.batches[before:] == [(1, 1)] * 20
        await slow.hear(ends)
        assert slow.keys == [b"small", b"large"]

    async def test_are_counted(self, followed: Followed) -> None:
        slow = await followed.watch("t")
        await followed.live(slow)
        while not slow.watcher.behind:
            await followed.put_together("t", *numbered(10))
        fast = await followed.watch("t")
        await fast.hear(await followed.put("t", *numbered(10)))
        assert followed.watches.lag_events >= 10
        assert followed.watches.open_watches == 2


class TestTheEnd:
    async def test_comes_to_all_when_the_core_stops(self, followed: Followed) -> None:
        listener = await followed.watch("t")
        followed.watches.close_all(refusal(Reason.DRAINING))
        assert await listener.reason() is Reason.DRAINING
        late = await followed.watches.open(RowInterest(NAMESPACE, frozenset()), [0], {})
        assert isinstance(late, Refusal)
        assert late.reason is Reason.DRAINING

    async def test_of_all_ends_the_reading(self, followed: Followed) -> None:
        listeners = [await followed.watch("t"), await followed.watch()]
        await followed.live(*listeners)
        for listener in listeners:
            listener.close()
        assert followed.watches.open_watches == 0
        assert not followed.watches.positions()
        while followed.tail.connected:
            await asyncio.sleep(0.01)
        again = await followed.watch("t")
        await again.hear(await followed.put("t", b"again"))
        assert again.keys == [b"again"]

    async def test_of_one_leaves_the_others(self, followed: Followed) -> None:
        gone, stays = await followed.watch("t"), await followed.watch("t")
        await followed.put("t", b"1")
        gone.close()
        await stays.hear(await followed.put("t", b"2"))
        assert stays.keys == [b"1", b"2"]


class TestRedisAway:
    async def test_and_back_leaves_no_gap_and_repeats_nothing(self, followed: Followed, redis: RedisConnection) -> None:
        listener = await followed.watch("t")
        for number in range(10):
            ends = await followed.put("t", b"%d" % number)
            redis.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await followed.connect()
        await listener.hear(ends)
        assert listener.keys == [b"%d" % number for number in range(10)]

    async def test_while_one_reads_the_log_is_waited_for(self, followed: Followed) -> None:
        ends = await followed.put("t", *numbered(10))
        ((partition, _),) = ends.items()
        listener = await followed.open(RowInterest(NAMESPACE, frozenset(("t",))), [partition], {partition: 0})
        assert followed.link is not None
        followed.link.abort()
        await listener.take()
        await followed.connect()
        await listener.hear(ends)
        assert listener.keys == numbered(10)

    async def test_is_told_to_who_comes(self, followed: Followed) -> None:
        assert followed.link is not None
        followed.link.abort()
        while followed.pipeline.refusing is None:
            await asyncio.sleep(0)
        refused = await followed.watches.open(RowInterest(NAMESPACE, frozenset()), [0], {})
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.UNAVAILABLE

    async def test_entries_that_went_unseen_are_missed_by_nobody_in_silence(
        self, followed: Followed, redis: RedisConnection
    ) -> None:
        """They were trimmed before the reader came back: whoever wanted them is told."""
        listener = await followed.watch("t")
        await listener.hear(await followed.put("t", b"1"))
        partition = followed.partition("t")
        await followed.live(listener)
        followed.tail._refreshing = False
        await followed.tail.close()
        for _ in range(10):
            await followed.put("t", b"unseen")
        await followed.store.trim_events(partition, 2, 1000)
        followed.tail.start()
        assert await listener.reason() is Reason.OFFSET_TRIMMED

    async def test_that_lost_what_was_told_is_told_to_all(self, own_redis_server: RedisServer) -> None:
        with RedisConnection(own_redis_server.path) as plain:
            prepare(plain)
            async with open_followed(own_redis_server.path) as followed:
                listener = await followed.watch("t")
                await listener.hear(await followed.put("t", *numbered(10)))
                prepare(plain)
                plain.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                assert await listener.reason() is Reason.OFFSET_TRIMMED


class TestDamage:
    async def test_of_an_entry_is_told_to_who_wants_it(self, followed: Followed, redis: RedisConnection) -> None:
        near, far = await followed.watch("t"), await followed.watch("u")
        await followed.put("t", b"1")
        ends = await followed.put("u", b"1")
        partition = followed.partition("t")
        await followed.live(near, far)
        (last,) = (await followed.ends(partition)).values()
        redis.command("XADD", f"{{p{partition:02d}}}:events", f"{last + 1}-0", "t", "1", "n", b"\x80rub", "e", b"bish")
        assert await near.reason() is Reason.DAMAGED
        await far.hear(ends | await followed.put("u", b"2"))
        assert far.keys == [b"1", b"2"]

    async def test_of_a_stream_leaves_the_other_partitions(self, followed: Followed, redis: RedisConnection) -> None:
        near, far = await followed.watch("t"), await followed.watch("u")
        assert followed.partition("t") != followed.partition("u")
        await followed.put("t", b"1")
        await followed.put("u", b"1")
        await followed.live(near, far)
        stream = f"{{p{followed.partition('t'):02d}}}:events"
        redis.command("DEL", stream)
        redis.command("SET", stream, "rubbish")
        ends = await followed.put("u", b"2")
        assert await near.reason() is Reason.DAMAGED
        await far.hear(ends | await followed.put("u", b"3"))
        assert far.keys == [b"1", b"2", b"3"]
