"""A partition as its keys are, read raw: for saying what must hold among them, and that nothing has changed."""

from __future__ import annotations

import struct
from typing import Any

from quintet_core.domain.job import JobState
from quintet_core.storage import keys

from tests.support.redis_server import RedisConnection

_RUN = struct.Struct(">BBII8s8sQQQQQQII8s8sBH")
_BODY = struct.Struct(">I8sQQQIQI")
_QUEUE = struct.Struct(">BQQH")
_STATE_SETS = {
    "delayed": JobState.DELAYED,
    "ready": JobState.READY,
    "leased": JobState.LEASED,
    "dead": JobState.DEAD,
}
_INFINITE = float("inf")


_READS: dict[bytes, tuple[str | int, ...]] = {
    b"hash": ("HGETALL",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    b"stream": ("XRANGE", "-", "+"),
    b"list": ("LRANGE", 0, -1),
    b"string": ("GET",),
}


def contents(redis: RedisConnection, partition: int) -> dict[str, tuple[bytes, Any]]:
    """Every key of a partition by its name: its type, and its value in a form that is the same when the value is."""
    tag = keys.partition_tag(partition).encode() + b":"
    found = sorted(redis.command("KEYS", tag + b"*"))
    kinds = redis.commands([("TYPE", key) for key in found]) if found else []
    reads = [(_READS[kind][0], key, *_READS[kind][1:]) for key, kind in zip(found, kinds, strict=True)]
    values = redis.commands(reads) if reads else []
    return {
        key.removeprefix(tag).decode(errors="backslashreplace"): (kind, _canonical(kind, value))
        for key, kind, value in zip(found, kinds, values, strict=True)
    }


def _canonical(kind: bytes, value: Any) -> Any:
    if kind == b"hash":
        return dict(zip(value[::2], value[1::2], strict=True))
    if kind == b"zset":
        return {member: float(score) for member, score in zip(value[::2], value[1::2], strict=True)}
    return value


class PartitionState:
    """All keys of one partition, decoded as far as the checks need."""

    def __init__(self, redis: RedisConnection, partition: int) -> None:
        self.raw = {name: value for name, (_, value) in contents(redis, partition).items()}

    def _of(self, name: str) -> dict[bytes, Any]:
        found: dict[bytes, Any] = self.raw.get(name, {})
        return found

    def states(self) -> dict[int, JobState]:
        """Sequence -> state, of every job in a state set, those of queues being deleted too."""
        found: dict[int, JobState] = {}
        for name in self.raw:
            queue, _, of = name.partition(":")
            if of not in _STATE_SETS:
                continue
            assert int(queue[1:]) in self._numbers(), f"{name} is of no queue"
            for place in self._of(name):
                sequence = int.from_bytes(place[-8:], "big")
                assert sequence not in found, f"job {sequence} is in two state sets"
                found[sequence] = _STATE_SETS[of]
        return found

    def _numbers(self) -> set[int]:
        return {int(number) for number in (*self._of("queues"), *self._of("deleting"))}

    def check(self) -> None:
        """What must hold among the keys at any time. Raises AssertionError."""
        self._check_queues()
        self._check_jobs()
        self._check_owned()
        self._check_due()
        assert set(self._of("dedup")) == set(self._of("dedup_due"))
        assert not set(self._of("sessions")) & set(self._of("lapsed"))

    def _check_queues(self) -> None:
        names = {name: int(number) for name, number in self._of("names").items()}
        assert set(self._of("index")) == set(names)
        assert {int(number) for number in self._of("queues")} == set(names.values())
        for number, record in self._of("queues").items():
            size = _QUEUE.unpack_from(record)[3]
            assert names[record[_QUEUE.size : _QUEUE.size + size]] == int(number)

    def _check_jobs(self) -> None:
        states = self.states()
        assert {int.from_bytes(raw, "big") for raw in self._of("jobs")} == set(states)
        assert set(self._of("runs")) <= set(self._of("jobs"))
        letters = set(self._of("letters"))
        dead = set()
        for raw, body in self._of("jobs").items():
            number, rank, _, _, expires, *_ = _BODY.unpack_from(body)
            state, place = states[int.from_bytes(raw, "big")], rank + raw
            run = self._of("runs").get(raw)
            if run is None:
                assert state in (JobState.READY, JobState.DELAYED)
            else:
                kept, _, _, in_queue, run_rank, position, _, deadline, *_ = _RUN.unpack_from(run)
                assert (in_queue, run_rank) == (number, rank)
                # A run tells delayed from ready no more than a body does: the set does.
                assert JobState(kept) is (JobState.READY if state is JobState.DELAYED else state)
                assert state is JobState.LEASED or deadline == 0
                place = rank + position + (b"" if position == raw else raw)
            self._check_place(number, state, place, expires)
            if state is JobState.DEAD:
                dead.add(struct.pack(">I", number) + place)
        assert letters <= dead, "a letter of a job that is not dead"

    def _check_place(self, number: int, state: JobState, place: bytes, expires: int) -> None:
        name = next(name for name, known in _STATE_SETS.items() if known is state)
        assert place in self._of(f"q{number}:{name}"), f"{place!r} is not where its job says"
        expiring = self._of(f"q{number}:expiring").get(place)
        goes = expires if state in (JobState.READY, JobState.DELAYED) and expires else None
        assert expiring == goes, f"{place!r} expires at {expiring}, its job at {goes}"

    def _check_owned(self) -> None:
        living = {int(number) for number in self._of("queues")}
        held = {
            run[82:98] + raw: int.from_bytes(run[6:10], "big") in living
            for raw, run in self._of("runs").items()
            if run[0] == JobState.LEASED and not any(run[34:42])
        }
        owned = set(self._of("owned"))
        # Of a queue that is being deleted the lease may be gone already, and its job not yet.
        assert {member for member, lives in held.items() if lives} <= owned <= set(held)
        for name in self.raw:
            if name.endswith(":leased"):
                for place, score in self._of(name).items():
                    run = self._of("runs")[place[-8:]]
                    assert score == (int.from_bytes(run[34:42], "big") or _INFINITE)

    def _check_due(self) -> None:
        for number, record in self._of("queues").items():
            until = _QUEUE.unpack_from(record)[1]
            times = [until] if until else []
            for name in ("delayed", "leased", "expiring"):
                times += [score for score in self._of(f"q{int(number)}:{name}").values() if score != _INFINITE]
            if times:
                due = self._of("due").get(number)
                assert due is not None, f"queue {number!r} is never due, but something in it is at {min(times)}"
                assert due <= min(times), f"queue {number!r} is due at {due}, something in it at {min(times)}"
