"""Damage of every kind to every key of a partition, and what a verb may do when it meets some.

An error comes before the first write or not at all: after an answer that is a refusal everything is as it was, or as it
is when what had fallen due was carried out and nothing else. A verb that does not need the damaged key does what it
does without the damage, to the byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import hiredis
from quintet_core.domain.errors import Reason
from quintet_core.storage.keys import name_key, partition_of

from tests.support.partition_state import contents
from tests.support.redis_server import RedisConnection
from tests.support.store import START_MS

Argument = bytes | str | int

FULL = bool(os.environ.get("QUINTET_TEST_FULL"))
PARTITION = 0
TAG = "{p00}"


def names(prefix: str) -> Iterator[bytes]:
    """Name keys of partition 0, each another."""
    for number in range(1000):
        key = name_key("n", f"{prefix}-{number}")
        if partition_of(key, 16) == PARTITION:
            yield key


@dataclass(frozen=True)
class Call:
    """One verb with its arguments."""

    verb: str
    arguments: tuple[Argument, ...]


def send(redis: RedisConnection, *calls: Call) -> list[Any]:
    """Carry out calls as one batch: their answers. One error instead of a reply is everybody's."""
    parts: list[Argument] = ["FCALL", "batch_v1", 1, TAG, b"replica1"]
    for call in calls:
        parts += (call.verb, len(call.arguments), *call.arguments)
    try:
        return list(redis.command(*parts)[4:])
    except hiredis.ReplyError as error:
        if not str(error).startswith("DAMAGED"):
            raise
        return [[b"!", int(Reason.DAMAGED)]] * len(calls)


@dataclass(frozen=True)
class Damage:
    """One thing wrong in one key. `type_only`: the key cannot be used at all."""

    key: str
    what: str
    do: tuple[tuple[Argument, ...], ...]
    type_only: bool = False


def wrong_types(keys: list[str]) -> Iterator[Damage]:
    """Each key another type than it should be."""
    for key in keys:
        name = f"{TAG}:{key}"
        yield Damage(key, "is a string", (("DEL", name), ("SET", name, "x")), True)


def missing(keys: list[str]) -> Iterator[Damage]:
    """Each key gone while others still refer to it."""
    for key in keys:
        yield Damage(key, "is gone", (("DEL", f"{TAG}:{key}"),))


def garbled(found: dict[str, Any]) -> Iterator[Damage]:
    """Values of hashes cut, emptied, overwritten, lengthened or lost; strays among the members of sets."""
    for key, value in found.items():
        name = f"{TAG}:{key}"
        kind, entries = value
        if kind == b"hash":
            for field, raw in entries.items():
                for what, wrong in (
                    ("cut", raw[: len(raw) // 2]),
                    ("empty", b""),
                    ("overwritten", b"\xff" * len(raw)),
                    ("lengthened", raw + b"\0"),
                ):
                    yield Damage(key, f"{field!r} {what}", (("HSET", name, field, wrong),))
                yield Damage(key, f"{field!r} lost", (("HDEL", name, field),))
            yield Damage(key, "with a stray field", (("HSET", name, b"\0stray", b"stray"),))
        elif kind == b"zset":
            strays = ((b"", 0), (b"zz", "-inf"), (bytes(16), 0), (bytes(24), START_MS + 1), (b"\xff" * 25, "+inf"))
            for stray, score in strays:
                yield Damage(key, f"with a stray {stray!r} at {score}", (("ZADD", name, score, stray),))
            for member in entries:
                yield Damage(key, f"{member!r} lost", (("ZREM", name, member),))
        else:
            yield Damage(key, "ahead of meta", (("XADD", name, "999999-0", "t", "1", "n", "", "e", ""),))
            last = max(int(entry[0].partition(b"-")[0]) for entry in entries)
            yield Damage(key, "of another shape", (("XTRIM", name, "MAXLEN", 0), ("XADD", name, f"{last}-1", "x", "y")))


@dataclass
class Scene:
    """The scene as it can be set again and again."""

    dump: dict[bytes, bytes]
    found: dict[str, Any]
    damaged: dict[Damage, dict[str, Any]] = field(default_factory=dict)

    def restore(self, redis: RedisConnection) -> None:
        """Everything as it was."""
        there = redis.command("KEYS", TAG + ":*")
        commands: list[tuple[Argument, ...]] = [("DEL", *there)] if there else []
        redis.commands([*commands, *(("RESTORE", key, 0, raw) for key, raw in self.dump.items())])

    def damage(self, redis: RedisConnection, damage: Damage) -> None:
        """Everything as it was but for one thing."""
        self.restore(redis)
        redis.commands(list(damage.do))

    def with_damage(self, redis: RedisConnection, damage: Damage) -> dict[str, Any]:
        """What is there after `damage`. Leaves it so."""
        self.damage(redis, damage)
        if damage not in self.damaged:
            self.damaged[damage] = contents(redis, PARTITION)
        return self.damaged[damage]


def scene_as_it_is(redis: RedisConnection) -> Scene:
    """What is there now."""
    keys = redis.command("KEYS", TAG + ":*")
    dumps = redis.commands([("DUMP", key) for key in keys])
    return Scene(dict(zip(keys, dumps, strict=True)), contents(redis, PARTITION))


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """Keys that are not the same in both."""
    return {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}


def is_refusal(answer: Any) -> bool:
    """Whether an answer is a refusal of any kind."""
    return isinstance(answer, list) and answer[:1] == [b"!"]


def try_out(
    redis: RedisConnection,
    scene: Scene,
    call: Call,
    damage: Damage,
    usual: tuple[Any, Any],
    settlings: Sequence[Sequence[Call]],
) -> str:
    """What is wrong with how one call meets one damage; empty when nothing is.

    `settlings` are calls that carry out what is due where this one looks and do no more: after a refusal the partition
    is as after one of them, or as before.
    """
    before = scene.with_damage(redis, damage)
    (answer,) = send(redis, call)
    after = contents(redis, PARTITION)
    if is_refusal(answer):
        if answer[1] == Reason.INTERNAL:
            return f"is our fault: {answer}"
        changed = differing(after, before)
        for settling in settlings:
            if not changed:
                return ""
            scene.damage(redis, damage)
            send(redis, *settling)
            changed = differing(after, contents(redis, PARTITION))
        return f"refused with {answer}, but changed {changed}" if changed else ""
    if damage.type_only:
        if answer != usual[0]:
            return f"answered {answer} instead of {usual[0]}"
        changed = differing(after, usual[1]) - {damage.key}
        return f"carried out, but {changed} are not as usual" if changed else ""
    return ""


def damages(scene: Scene, turn: int, further_keys: Sequence[str]) -> list[Damage]:
    """All of them; of the garbled values a third, by turns, unless QUINTET_TEST_FULL is set.

    `further_keys` are not there: what stands where they are to be.
    """
    third = slice(turn % 3, None, 3) if not FULL else slice(None)
    return [
        *wrong_types([*scene.found, *further_keys]),
        *missing(list(scene.found)),
        *list(garbled(scene.found))[third],
    ]
