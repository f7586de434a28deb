"""Page tokens: opaque to clients, checked when they come back."""

from __future__ import annotations

import base64
import binascii

from quintet_core.domain.errors import CallerError, broken

PARTS_BYTES_MAX = 8192


def encode(*parts: bytes) -> str:
    """Parts of at most 65535 bytes each, as text that is safe in a URL."""
    raw = b"".join(len(part).to_bytes(2, "big") + part for part in parts)
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode(token: str, count: int) -> list[bytes]:
    """The `count` parts of a token. Raises CallerError when it is none of ours."""
    if len(token) > PARTS_BYTES_MAX:
        raise unknown()
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise unknown() from None
    parts, at = [], 0
    for _ in range(count):
        size = int.from_bytes(raw[at : at + 2], "big")
        parts.append(raw[at + 2 : at + 2 + size])
        at += 2 + size
    if at != len(raw):
        raise unknown()
    return parts


def unknown() -> CallerError:
    """For a token that this core did not give."""
    return broken("page_token is unknown", field="page_token")
