"""Partial damage: each verb of tables against each key it might meet in each wrong shape: tests/support/damage.py."""

from __future__ import annotations

import struct
from itertools import combinations
from typing import Any

import pytest
from quintet_core.domain.errors import Reason
from quintet_core.storage.keys import namespace_scope

from tests.support.damage import (
    PARTITION,
    TAG,
    Argument,
    Call,
    Scene,
    damages,
    differing,
    is_refusal,
    names,
    scene_as_it_is,
    send,
    try_out,
)
from tests.support.partition_state import contents
from tests.support.redis_server import RedisConnection
from tests.support.store import START_MS

SCOPE = namespace_scope("n")
_NAMES = names("table")
FIRST, LIMITED, NEW, DELETED, EMPTY = (next(_NAMES) for _ in range(5))
TABLES = (FIRST, LIMITED, EMPTY)
# The numbers that the scene gives them.
FIRST_NUMBER = 2**31 + 1
NEW_NUMBER = 2**31 + 5
KEEP, SET, CLEAR, DELETE = 0, 1, 2, 9
TTL_MS = 50_000
# Later, everything with a deadline is due.
LATER_MS = 200_000


def settings(rows_max: int | None = None, value_bytes_max: int | None = None, carries: bool = False) -> bytes:
    """As the core packs them."""
    flags = (rows_max is not None) + 2 * (value_bytes_max is not None) + 4 * carries
    return struct.pack(">BQQ", flags, rows_max or 0, value_bytes_max or 0)


def options(change: int = KEEP, ttl_ms: int = 0, expected: int | None = None) -> bytes:
    """Of a put, or of one write of several."""
    return struct.pack(">BQBQ", change, ttl_ms, expected is not None, expected or 0)


def put(table: bytes, key: bytes, change: int = KEEP, expected: int | None = None) -> Call:
    """One row; the table is created when there is none."""
    return Call("put_row", (table, settings(), options(change, TTL_MS, expected), key, b"v" * 20))


def write(table: bytes, *writes: tuple[bytes, bytes]) -> Call:
    """Several rows: options and key of each."""
    arguments: list[Argument] = [table, settings(), len(writes)]
    for packed, key in writes:
        arguments += (packed, key, b"w" * 20)
    return Call("write_rows", tuple(arguments))


def set_scene(redis: RedisConnection) -> None:
    """Tables with rows that stay and rows that expire, one without rows, one that was deleted; a queue beside them."""
    redis.command("HSET", TAG + ":meta", "clock", START_MS)
    calls = [
        Call("create_table", (FIRST, settings(carries=True))),
        Call("create_table", (LIMITED, settings(rows_max=3, value_bytes_max=50))),
        Call("create_table", (EMPTY, settings())),
        *(put(FIRST, key) for key in (b"a", b"b", b"c")),
        *(put(FIRST, key, SET) for key in (b"d", b"e")),
        put(LIMITED, b"a", SET),
        put(LIMITED, b"b"),
        put(LIMITED, b"c"),
        put(DELETED, b"a"),
        put(DELETED, b"b", SET),
        Call("delete_table", (DELETED,)),
        Call("commit_offset", ("consumer", 3, 1)),
    ]
    for call in calls:
        (answer,) = send(redis, call)
        assert not is_refusal(answer), (call, answer)


# Each verb as it is called on the scene: what is named twice is called in two ways.
CALLS: dict[str, Call] = {
    "create_table": Call("create_table", (NEW, settings(rows_max=5))),
    "create_table that is dropping": Call("create_table", (DELETED, settings())),
    "create_table that is there": Call("create_table", (FIRST, settings())),
    "update_table": Call("update_table", (FIRST, settings(rows_max=1))),
    "delete_table": Call("delete_table", (FIRST,)),
    "delete_table without rows": Call("delete_table", (EMPTY,)),
    "get_table": Call("get_table", (FIRST,)),
    "list_tables": Call("list_tables", (SCOPE, SCOPE + b"\xff", "", 10)),
    "put_row": put(FIRST, b"new"),
    "put_row over another": put(FIRST, b"a"),
    "put_row with a time to live": put(FIRST, b"a", SET),
    "put_row that keeps a time to live": put(FIRST, b"d"),
    "put_row that clears a time to live": put(FIRST, b"d", CLEAR),
    "put_row as expected": put(FIRST, b"a", expected=4),
    "put_row into a full table": put(LIMITED, b"new"),
    "put_row over one in a full table": put(LIMITED, b"a"),
    "put_row into a new table": put(NEW, b"a", SET),
    "put_row into a table that is dropping": put(DELETED, b"a"),
    "get_row": Call("get_row", (FIRST, b"a")),
    "get_row that expires": Call("get_row", (FIRST, b"d")),
    "get_row that is not there": Call("get_row", (FIRST, b"z")),
    "delete_row": Call("delete_row", (FIRST, b"a", "")),
    "delete_row that expires": Call("delete_row", (FIRST, b"d", "")),
    "delete_row as expected": Call("delete_row", (FIRST, b"a", 4)),
    "scan_rows": Call("scan_rows", (FIRST, "-", "+", 10, "0")),
    "scan_rows by prefix": Call("scan_rows", (LIMITED, "[b", "(c", 1, "1")),
    "write_rows": write(FIRST, (options(), b"a"), (options(DELETE), b"b"), (options(SET, 5), b"n"), (options(), b"d")),
    "write_rows that go": write(FIRST, (options(DELETE), b"d"), (options(DELETE), b"z")),
    "write_rows into a full table": write(LIMITED, (options(), b"n"), (options(DELETE), b"a")),
    "write_rows into a new table": write(NEW, (options(SET, 9), b"a"), (options(), b"b")),
    "settle_due": Call("settle_due", (10,)),
    "sweep": Call("sweep", ()),
    "read_events": Call("read_events", (0, 100, "1")),
    "describe_events": Call("describe_events", ("consumer",)),
    "trim_events": Call("trim_events", (2, 5)),
}


def settlings(call: Call) -> list[tuple[Call, ...]]:
    """Calls that carry out what is due where `call` looks, and do no more."""
    if call.verb == "settle_due":
        # What is wrong with one table must not keep the others.
        of_all = tuple(Call("get_table", (table,)) for table in TABLES)
        return [chosen for count in (3, 2, 1) for chosen in combinations(of_all, count)]
    table = call.arguments[0] if call.arguments else ""
    of_table: list[tuple[Call, ...]] = [(Call("get_table", (table,)),)] if table in TABLES else []
    if call.verb in ("get_row", "delete_row", "put_row"):
        key = call.arguments[3 if call.verb == "put_row" else 1]
        of_table.append((Call("get_row", (table, key)),))
    return of_table


@pytest.fixture(scope="module")
def scenes() -> dict[int, Scene]:
    """By how much later it is; filled by `scene_of`."""
    return {}


def scene_of(redis: RedisConnection, scenes: dict[int, Scene], later_ms: int) -> Scene:
    """The scene, made once and kept as dumps."""
    if later_ms not in scenes:
        set_scene(redis)
        redis.command("HSET", TAG + ":meta", "clock", START_MS + later_ms)
        scenes[later_ms] = scene_as_it_is(redis)
    return scenes[later_ms]


def test_the_scene_is_as_the_calls_take_it_to_be(redis: RedisConnection, scenes: dict[int, Scene]) -> None:
    found = scene_of(redis, scenes, 0).found
    assert {f"t{FIRST_NUMBER}:rows", "table_names", "table_index", "tables", "dropping", "due"} <= set(found)
    assert not any(key.startswith(f"t{NEW_NUMBER}") for key in found)
    answers = {name: send(redis, call)[0] for name, call in CALLS.items()}
    expected = {
        "create_table that is there": Reason.TABLE_EXISTS,
        "put_row into a full table": Reason.TABLE_FULL,
        "get_row that is not there": Reason.ROW_NOT_FOUND,
    }
    for name in ("put_row as expected", "put_row into a full table", "get_row that is not there", "delete_row"):
        scene_of(redis, scenes, 0).restore(redis)
        answers[name] = send(redis, CALLS[name])[0]
    found_reasons = {name: answer[1] for name, answer in answers.items() if is_refusal(answer)}
    assert {name: found_reasons.get(name) for name in expected} == expected
    assert "put_row as expected" not in found_reasons
    send(redis, CALLS["put_row into a new table"])
    assert redis.command("EXISTS", f"{TAG}:t{NEW_NUMBER}:rows") == 1


@pytest.mark.parametrize("later_ms", [0, LATER_MS], ids=["nothing due", "all due"])
@pytest.mark.parametrize("name", CALLS)
def test_an_error_comes_before_the_first_write_or_not_at_all(
    redis: RedisConnection, scenes: dict[int, Scene], name: str, later_ms: int
) -> None:
    scene, call = scene_of(redis, scenes, later_ms), CALLS[name]
    scene.restore(redis)
    usual = send(redis, call)[0], contents(redis, PARTITION)
    # Of the new table: what stands where its keys are to be.
    further = [f"t{NEW_NUMBER}:rows", f"t{NEW_NUMBER}:keys", f"t{NEW_NUMBER}:expiring"]
    possible = damages(scene, list(CALLS).index(name), further)
    tried = ((damage, try_out(redis, scene, call, damage, usual, settlings(call))) for damage in possible)
    failures = [f"{damage.key} {damage.what}: {problem}" for damage, problem in tried if problem]
    assert not failures, f"{len(failures)} of them:\n" + "\n".join(failures[:20])


@pytest.mark.parametrize("name", [name for name, call in CALLS.items() if FIRST in call.arguments])
def test_good_operations_around_a_damaged_one_are_done(
    redis: RedisConnection, scenes: dict[int, Scene], name: str
) -> None:
    scene, call = scene_of(redis, scenes, 0), CALLS[name]
    good = Call("delete_row", (LIMITED, b"b", "")), put(EMPTY, b"new", SET)
    for key in [key for key in scene.found if key.startswith(f"t{FIRST_NUMBER}:")]:
        damage: list[tuple[bytes | str | int | float, ...]] = [("DEL", f"{TAG}:{key}"), ("SET", f"{TAG}:{key}", "x")]
        scene.restore(redis)
        redis.commands(damage)
        before, damaged, after = send(redis, good[0], call, good[1])
        assert not is_refusal(before)
        assert not is_refusal(after)
        if is_refusal(damaged):
            assert damaged[1] in (Reason.DAMAGED, Reason.TABLE_EXISTS, Reason.ROW_NOT_FOUND), damaged
            got = contents(redis, PARTITION)
            scene.restore(redis)
            redis.commands(damage)
            send(redis, *good)
            assert not differing(got, contents(redis, PARTITION))


def test_one_damaged_table_keeps_no_other_from_being_dropped(redis: RedisConnection, scenes: dict[int, Scene]) -> None:
    scene = scene_of(redis, scenes, 0)
    scene.restore(redis)
    number = int(dict(_pairs(redis.command("HGETALL", TAG + ":dropping")))[DELETED])
    redis.command("DEL", f"{TAG}:t{number}:rows")
    redis.command("SET", f"{TAG}:t{number}:rows", "x")
    send(redis, Call("delete_table", (FIRST,)))
    answers = [send(redis, Call("sweep", ()))[0] for _ in range(5)]
    assert dict(_pairs(redis.command("HGETALL", TAG + ":dropping"))).keys() == {DELETED}
    assert redis.command("EXISTS", f"{TAG}:t{FIRST_NUMBER}:rows") == 0
    assert answers[-1][1] == Reason.DAMAGED


def _pairs(flat: list[Any]) -> zip[tuple[Any, Any]]:
    return zip(flat[::2], flat[1::2], strict=True)
