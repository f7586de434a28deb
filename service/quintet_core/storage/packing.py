"""Operations as Redis takes them. An operation is packed when it is submitted, so that a batch is a join of bytes.

The hot verbs are put together by hand from parts that are the same each time; all others by hiredis.
"""

from __future__ import annotations

import struct
from functools import lru_cache

import hiredis

from quintet_core.storage.keys import partition_tag

Argument = bytes | str | int

_U64 = struct.Struct(">Q")


def bulk(value: bytes) -> bytes:
    """One argument in Redis's protocol."""
    return b"$%d\r\n%b\r\n" % (len(value), value)


@lru_cache(maxsize=65536)
def named(key: bytes) -> bytes:
    """A name key as an argument."""
    return bulk(key)


def pack(verb: str, arguments: list[Argument]) -> tuple[int, bytes]:
    """How many arguments the operation adds to its call, and their bytes. Raises TypeError for what is no argument."""
    packed: bytes = hiredis.pack_command((verb, len(arguments), *arguments))  # type: ignore[arg-type]
    return 2 + len(arguments), packed[packed.index(b"\n") + 1 :]


@lru_cache(maxsize=4096)
def call_head(function: str, partition: int, replica: bytes) -> bytes:
    """What every call of a partition begins with, behind the number of its arguments."""
    parts = (b"FCALL", function.encode(), b"1", partition_tag(partition).encode(), replica)
    return b"".join(map(bulk, parts))


CALL_HEAD_ARGUMENTS = 5

_ENQUEUE_HEAD = b"$7\r\nenqueue\r\n$1\r\n6\r\n"
_ENQUEUE_ONE = b"$1\r\n1\r\n$48\r\n%b\r\n$0\r\n\r\n$%d\r\n%b\r\n"
_ENQUEUE_ONE_ARGUMENTS = 8


def pack_enqueue_one(key: bytes, settings: bytes, options: bytes, tail: bytes) -> tuple[int, bytes]:
    """enqueue of one job without a deduplication key. `settings` is packed already."""
    return _ENQUEUE_ONE_ARGUMENTS, b"".join(
        (_ENQUEUE_HEAD, named(key), settings, _ENQUEUE_ONE % (options, len(tail), tail))
    )


_DEQUEUE_HEAD = b"$7\r\ndequeue\r\n$1\r\n3\r\n$1\r\n1\r\n"
_DEQUEUE_ONE_ARGUMENTS = 5


def pack_dequeue_one(key: bytes, terms: bytes) -> tuple[int, bytes]:
    """dequeue from one queue. `terms` is packed already."""
    return _DEQUEUE_ONE_ARGUMENTS, b"".join((_DEQUEUE_HEAD, named(key), terms))


@lru_cache(maxsize=65536)
def named_scope(key: bytes, exact: bool) -> bytes:
    """A scope as two arguments."""
    return bulk(key) + bulk(b"1" if exact else b"0")


_ACKNOWLEDGE_HEAD = b"$11\r\nacknowledge\r\n$1\r\n4\r\n$8\r\n"
_ACKNOWLEDGE_ARGUMENTS = 6
_DELETE_HEAD = b"$6\r\ndelete\r\n$1\r\n3\r\n$8\r\n"
_DELETE_ARGUMENTS = 5
_CRLF, _TOKEN, _NO_TOKEN = b"\r\n", b"$8\r\n", b"$0\r\n"


def pack_acknowledge(sequence: int, scope: bytes, exact: bool, token: bytes) -> tuple[int, bytes]:
    """acknowledge of one job; `token` is 8 bytes or empty."""
    return _ACKNOWLEDGE_ARGUMENTS, b"".join(
        (
            _ACKNOWLEDGE_HEAD, _U64.pack(sequence), _CRLF, named_scope(scope, exact), _TOKEN if token else _NO_TOKEN,
            token, _CRLF,
        )
    )  # fmt: skip


def pack_delete(sequence: int, scope: bytes, exact: bool) -> tuple[int, bytes]:
    """delete of one job."""
    return _DELETE_ARGUMENTS, b"".join((_DELETE_HEAD, _U64.pack(sequence), _CRLF, named_scope(scope, exact)))
