"""The only builder of Redis keys, and of the name keys that stand for user-given names.

The keys inside a partition are built by the function library from the partition's hash tag; its first file is their
legend.
"""

from __future__ import annotations

import binascii
from functools import lru_cache

INFO = "{quintet}:info"
WAKE_CHANNEL = "quintet:wake"


def partition_tag(partition: int) -> str:
    """The hash tag that every key of a partition carries, and the one key its functions take."""
    return f"{{p{partition:02d}}}"


def namespace_scope(namespace: str) -> bytes:
    """What the name keys of a namespace begin with: one byte of length, then the namespace in UTF-8."""
    raw = namespace.encode()
    return bytes((len(raw),)) + raw


@lru_cache(maxsize=65536)
def name_key(namespace: str, name: str) -> bytes:
    """A queue's name as the functions know it."""
    return namespace_scope(namespace) + name.encode()


def split_name_key(key: bytes) -> tuple[str, str]:
    """Namespace and name of a name key."""
    end = 1 + key[0]
    return key[1:end].decode(), key[end:].decode()


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a name key: its CRC16 (as Redis Cluster computes it) modulo the number of partitions."""
    return binascii.crc_hqx(key, 0) % partitions
