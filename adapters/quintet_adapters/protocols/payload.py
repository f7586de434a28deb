"""Payloads between tongues: what counts is the content type; nobody parses a payload to find out what it is."""

from __future__ import annotations

from base64 import b64encode
from typing import Final

import msgspec

JSON_CONTENT_TYPE: Final = "application/json"
BYTES_CONTENT_TYPE: Final = "application/octet-stream"

_LINE_ENDS_TO_SPACES: Final = bytes.maketrans(b"\r\n", b"  ")


def is_json(content_type: str) -> bool:
    """Whether payloads of this type are JSON, parameters like a charset aside."""
    return content_type == JSON_CONTENT_TYPE or content_type.partition(";")[0].strip().lower() == JSON_CONTENT_TYPE


def as_json_object(content_type: str, payload: bytes) -> bytes:
    """The payload as the JSON object it is, on one line; anything else wrapped into one (see `as_wrapped`).

    What is not UTF-8 is no JSON whatever its type says: it would break the answer it stands in.
    """
    if payload.startswith(b"{") and is_json(content_type) and (payload.isascii() or is_utf8(payload)):
        return on_one_line(payload)
    return as_wrapped(payload)


def as_json(content_type: str, payload: bytes) -> bytes:
    """The payload as the JSON value it is, byte for byte; anything else wrapped (see `as_wrapped`).

    What is empty or not UTF-8 is no JSON either.
    """
    if payload and is_json(content_type) and (payload.isascii() or is_utf8(payload)):
        return payload
    return as_wrapped(payload)


def is_utf8(data: bytes) -> bool:
    """Whether the bytes are UTF-8 throughout."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def on_one_line(source: bytes) -> bytes:
    """JSON whose white space has no line ends. (Line ends inside strings are escapes already.)"""
    return source.translate(_LINE_ENDS_TO_SPACES) if b"\n" in source else source


def as_wrapped(payload: bytes) -> bytes:
    """`{"encoding":"utf-8"|"base64","data":"..."}`."""
    try:
        encoding, data = "utf-8", payload.decode()
    except UnicodeDecodeError:
        encoding, data = "base64", b64encode(payload).decode()
    return msgspec.json.encode({"encoding": encoding, "data": data})
