"""The connection to Redis: replies in order, however their bytes come apart."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import hiredis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quintet_core.storage.link import Address, Link, LinkLostError, connect

from tests.support.redis_server import RedisConnection, RedisServer


class Written(asyncio.Transport):
    """Takes what is written, and can be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.data = b""
        self.aborted = False

    def write(self, data: Any) -> None:
        """Keep it."""
        self.data += bytes(data)

    def abort(self) -> None:
        """Remember."""
        self.aborted = True

    def is_closing(self) -> bool:
        """Once aborted."""
        return self.aborted


def linked() -> tuple[Link, Written, list[None]]:
    """A link on a transport that only takes notes."""
    lost: list[None] = []
    link, transport = Link(lambda: lost.append(None)), Written()
    link.connection_made(transport)
    return link, transport, lost


values = st.recursive(
    st.none() | st.integers(-(2**63), 2**63 - 1) | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


def encoded(value: Any) -> bytes:
    """A reply as Redis writes it."""
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, bytes):
        return b"$%d\r\n%s\r\n" % (len(value), value)
    return b"*%d\r\n%s" % (len(value), b"".join(map(encoded, value)))


def keep(got: list[tuple[int, Any]], number: int, reply: Any) -> None:
    """Note which command got what."""
    got.append((number, reply))


@given(replies=st.lists(values, max_size=8), cuts=st.lists(st.integers(0, 400), max_size=20))
def test_replies_come_whole_and_in_order_wherever_the_bytes_are_cut(replies: list[Any], cuts: list[int]) -> None:
    link, transport, _ = linked()
    got: list[tuple[int, Any]] = []
    for number in range(len(replies)):
        link.send(b"", partial(keep, got, number))
    data = b"".join(map(encoded, replies))
    at = 0
    for cut in [*sorted(cuts), len(data)]:
        if min(cut, len(data)) > at:
            link.data_received(data[at:cut])
            at = min(cut, len(data))
    assert got == list(enumerate(replies))
    assert not transport.aborted


def test_an_error_reply_is_a_reply() -> None:
    link, _, _ = linked()
    got: list[Any] = []
    link.send(b"", got.append)
    link.data_received(b"-OOM command not allowed\r\n")
    assert isinstance(got[0], hiredis.ReplyError)
    assert str(got[0]).startswith("OOM")


def test_what_is_no_reply_ends_the_connection() -> None:
    link, transport, _ = linked()
    link.data_received(b"nonsense\r\n")
    assert transport.aborted


def test_pushed_messages_go_to_who_wants_them() -> None:
    link, _, _ = linked()
    pushed: list[Any] = []
    link.data_received(encoded([b"message", b"too early"]))
    link.on_push = pushed.append
    link.data_received(encoded([b"message", b"heard"]))
    assert pushed == [[b"message", b"heard"]]


def test_everything_unanswered_is_told_of_the_loss_once() -> None:
    link, _, lost = linked()
    got: list[Any] = []
    link.send_all([b"a", b"b"], [got.append, got.append])
    link.data_received(b":1\r\n")
    link.connection_lost(None)
    assert got[0] == 1
    assert isinstance(got[1], LinkLostError)
    assert (len(got), len(lost), link.open) == (2, 1, False)
    link.send(b"c", got.append)
    link.send_all([b"d"], [got.append])
    assert [type(reply) for reply in got[2:]] == [LinkLostError, LinkLostError]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://", Address(host="localhost", port=6379)),
        ("redis://h:1/2", Address(host="h", port=1, database=2)),
        ("rediss://u:p%40@h", Address(host="h", username="u", password="p@", tls=True)),
        ("unix:///tmp/redis.sock?db=3", Address(path="/tmp/redis.sock", database=3)),
    ],
)
def test_an_address_is_read_from_its_url(url: str, address: Address) -> None:
    assert Address.parse(url) == address


@pytest.mark.parametrize("url", ["http://h", "h:6379", "redis://h:port", "redis://h/x", ""])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Address.parse(url)


async def test_commands_are_answered_by_a_real_server(redis_server: RedisServer, redis: RedisConnection) -> None:
    link = await connect(Address(path=redis_server.path), lambda: None)
    try:
        assert await link.command("SET", "key", b"\x00\xff") in ("OK", b"OK")
        found = await asyncio.gather(link.command("GET", "key"), link.command("GET", "none"))
        assert list(found) == [b"\x00\xff", None]
        with pytest.raises(hiredis.ReplyError, match="unknown command"):
            await link.command("NONSENSE")
    finally:
        link.close()


async def test_a_server_that_is_not_there_is_an_error(redis_server: RedisServer) -> None:
    with pytest.raises(OSError, match=r".+"):
        await connect(Address(path=redis_server.path + "-not"), lambda: None)


async def test_a_refused_handshake_leaves_no_connection(redis_server: RedisServer, redis: RedisConnection) -> None:
    clients = redis.command("CLIENT", "LIST").count(b"\n")
    with pytest.raises(hiredis.ReplyError, match=r"WRONGPASS|AUTH"):
        await connect(Address(path=redis_server.path, username="nobody", password="wrong"), lambda: None)
    while redis.command("CLIENT", "LIST").count(b"\n") > clients:
        await asyncio.sleep(0.01)
