"""The public keys of the clients that CURVE admits: a directory with a file for each."""

from __future__ import annotations

import re
import struct
import time
from pathlib import Path
from typing import Final

import zmq
import zmq.utils.z85
from quintet_kit.logs import get_logger

_FILES_MAX: Final = 10_000
_FILE_BYTES_MAX: Final = 4096
_LOOK_AGAIN_S: Final = 1.0
_Z85_KEY_BYTES: Final = 40
_Z85_KEY: Final = re.compile(rb"[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
_CERTIFICATE: Final = re.compile(rb'^\s*public-key\s*=\s*"([^"\n]{40})"\s*$', re.MULTILINE)
"""The line of a certificate file, as CZMQ and pyzmq write them."""


class ClientKeys:
    """The keys in a directory, read again when it has changed; looked at once a second at most."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._keys: frozenset[bytes] = frozenset()
        self._seen: tuple[tuple[str, int, int], ...] = ()
        self._looked_at = float("-inf")

    def read(self) -> frozenset[bytes]:
        """The keys, 32 bytes each. A directory that cannot be read admits nobody."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_AGAIN_S:
            self._looked_at = now
            self._look()
        return self._keys

    def _look(self) -> None:
        try:
            files = sorted(path for path in self._directory.iterdir() if path.is_file())[:_FILES_MAX]
            stats = [(path, path.stat()) for path in files]
        except OSError as error:
            get_logger().error("client_keys_unreadable", directory=str(self._directory), reason=str(error))
            self._keys, self._seen = frozenset(), ()
            return
        seen = tuple((path.name, stat.st_mtime_ns, stat.st_size) for path, stat in stats)
        if seen != self._seen:
            self._seen = seen
            self._keys = frozenset(key for path in files if (key := _key_of(path)) is not None)


def _key_of(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX)
    except OSError:
        return None
    key = read_public_key(text)
    if key is None:
        get_logger().warning("client_key_unusable", file=path.name)
    return key


def read_public_key(text: bytes) -> bytes | None:
    """The 32 bytes of the key in a file: 40 characters of Z85, or a certificate with a `public-key` line."""
    certificate = _CERTIFICATE.search(text)
    encoded = certificate.group(1) if certificate is not None else text.strip()
    if _Z85_KEY.fullmatch(encoded) is None:
        return None
    try:
        return zmq.utils.z85.decode(encoded)
    except (ValueError, struct.error):
        return None


def is_secret_key(text: str) -> bool:
    """Whether this can be a secret key in Z85."""
    try:
        return len(zmq.curve_public(text.encode())) == _Z85_KEY_BYTES
    except (ValueError, UnicodeError, zmq.ZMQError):
        return False
