"""Reads one text queue command out of bytes that come in any pieces.

Each rule looks only at the shortest prefix that decides it, so that the same bytes give the same command or fault
however they are split.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

ID_CHARACTERS: Final = 16
_ID_CHARACTERS_MAX: Final = 128
_LENGTH_DIGITS_MAX: Final = 128
_WHITE_SPACE = re.compile(rb"[ \t\n\r\v\f]")
_OUR_ID = re.compile(rb"[0-9a-f]{16}\Z")
_ANY_ID = re.compile(rb"[!-~]{1,128}\Z")
_DIGITS = re.compile(rb"[0-9]*\Z")


@dataclass(frozen=True, slots=True)
class Add:
    """ADD <queue> <length> <data>"""

    queue: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Get:
    """GET <queue>"""

    queue: str


@dataclass(frozen=True, slots=True)
class Ack:
    """ACK <queue> <id>; 0 stands for an id that cannot be one of ours."""

    queue: str
    job_id: int


@dataclass(frozen=True, slots=True)
class In:
    """IN <queue> <id>; 0 stands for an id that cannot be one of ours."""

    queue: str
    job_id: int


@dataclass(frozen=True, slots=True)
class Save:
    """SAVE, of the dialect `course`."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What cannot become a command any more, and why, in one line."""

    word: str
    reason: str


Command = Add | Get | Ack | In | Save | Fault

_UNKNOWN: Final = Fault("invalid", "unknown command")


class _FaultError(Exception):
    pass


class CommandReader:
    """Bytes of one connection up to its one command."""

    def __init__(self, data_bytes_max: int, queue_name_bytes_max: int, *, with_save: bool) -> None:
        self._data_bytes_max = data_bytes_max
        self._name_bytes_max = queue_name_bytes_max
        self._words = (b"ADD", b"GET", b"ACK", b"IN", *((b"SAVE",) if with_save else ()))
        self._line_bytes_max = queue_name_bytes_max + _ID_CHARACTERS_MAX + 8
        self._buffer = bytearray()
        self._add_queue = ""
        self._data_start = 0
        self._data_end = 0
        self.settle_after_quiet = False
        """What is there is a whole command if nothing more comes."""

    @property
    def is_empty(self) -> bool:
        """Nothing was received."""
        return not self._buffer

    def receive(self, data: bytes) -> Command | None:
        """Adds bytes. Returns the command as soon as it is complete."""
        self._buffer += data
        self.settle_after_quiet = False
        if self._data_end:
            return self._add_if_complete()
        if self._buffer.startswith(b"ADD "):
            return self._read_add()
        return self._read_line()

    def settle(self) -> Command | None:
        """The quiet period has passed: what is there, if it is a well-formed command."""
        return self._line_command(bytes(self._buffer)) if self.settle_after_quiet else None

    def end(self) -> Command:
        """The end of the stream has come: what is there, or a fault."""
        if self._buffer.startswith(b"ADD "):
            return Fault("ADD", "the data ended early")
        return self._line_command(bytes(self._buffer))

    def clear(self) -> None:
        """Forgets everything."""
        self._buffer = bytearray()

    # ADD: ended by its length alone.

    def _read_add(self) -> Command | None:
        try:
            return self._read_add_header()
        except _FaultError as fault:
            return Fault("ADD", str(fault))

    def _read_add_header(self) -> Command | None:
        name_start = 4
        name_end = self._buffer.find(b" ", name_start, name_start + self._name_bytes_max + 1)
        name = bytes(self._buffer[name_start : name_end if name_end >= 0 else name_start + self._name_bytes_max + 1])
        if name_end < 0:
            self._check_name_so_far(name)
            return None
        queue = self._queue_name(name)
        digits_start = name_end + 1
        digits_end = self._buffer.find(b" ", digits_start, digits_start + _LENGTH_DIGITS_MAX + 1)
        digits = bytes(self._buffer[digits_start : digits_end if digits_end >= 0 else None][: _LENGTH_DIGITS_MAX + 1])
        if not _DIGITS.match(digits) or len(digits) > _LENGTH_DIGITS_MAX or (digits_end >= 0 and not digits):
            raise _FaultError("the length must be decimal digits")
        if digits_end < 0:
            return None
        if int(digits) > self._data_bytes_max:
            raise _FaultError(f"data too long: at most {self._data_bytes_max} bytes")
        self._add_queue, self._data_start = queue, digits_end + 1
        self._data_end = self._data_start + int(digits)
        return self._add_if_complete()

    def _add_if_complete(self) -> Command | None:
        if len(self._buffer) < self._data_end:
            return None
        with memoryview(self._buffer) as view:
            return Add(self._add_queue, bytes(view[self._data_start : self._data_end]))

    # The others: ended by a line end, the end of the stream, or quiet.

    def _read_line(self) -> Command | None:
        end = self._buffer.find(b"\n", 0, self._line_bytes_max + 1)
        if end >= 0:
            return self._line_command(bytes(self._buffer[: end + 1]))
        if len(self._buffer) > self._line_bytes_max:
            return self._line_command(bytes(self._buffer[: self._line_bytes_max + 1]))
        line = bytes(self._buffer).removesuffix(b"\r")
        word = line.split(b" ", 1)[0]
        if b" " in line:
            if word not in self._words:
                return _UNKNOWN
        elif not any(known.startswith(word) for known in self._words):
            return _UNKNOWN
        command = self._line_command(bytes(self._buffer))
        self.settle_after_quiet = not isinstance(command, Fault)
        return command if self._has_whole_id(command) else None

    def _has_whole_id(self, command: Command) -> bool:
        """Nobody's id goes on after the length of ours, so that there is nothing to wait for."""
        return isinstance(command, Ack | In) and self._buffer.rfind(b" ") == len(self._buffer) - ID_CHARACTERS - 1

    def _line_command(self, line: bytes) -> Command:
        """The command that a whole line is; its line end may be missing."""
        parts = line.removesuffix(b"\n").removesuffix(b"\r").split(b" ")
        word = parts[0]
        if word not in self._words:
            return _UNKNOWN
        try:
            return self._command_of(word, parts[1:])
        except _FaultError as fault:
            return Fault(word.decode(), str(fault))

    def _command_of(self, word: bytes, parts: list[bytes]) -> Command:
        wanted = {b"ADD": 3, b"GET": 1, b"ACK": 2, b"IN": 2, b"SAVE": 0}[word]
        if len(parts) != wanted:
            raise _FaultError("wrong number of parts")
        if word == b"SAVE":
            return Save()
        queue = self._queue_name(parts[0])
        if word == b"GET":
            return Get(queue)
        job_id = _job_id(parts[1])
        return Ack(queue, job_id) if word == b"ACK" else In(queue, job_id)

    def _queue_name(self, name: bytes) -> str:
        self._check_name_so_far(name)
        if not name:
            raise _FaultError("the queue's name is empty")
        try:
            return name.decode()
        except UnicodeDecodeError:
            raise _FaultError("the queue's name is not UTF-8") from None

    def _check_name_so_far(self, name: bytes) -> None:
        if _WHITE_SPACE.search(name, 0, self._name_bytes_max + 1):
            raise _FaultError("white space in the queue's name")
        if len(name) > self._name_bytes_max:
            raise _FaultError(f"the queue's name is too long: at most {self._name_bytes_max} bytes")


def _job_id(text: bytes) -> int:
    """The job's number, or 0 for an id that is none of ours."""
    if not _ANY_ID.match(text):
        raise _FaultError("the id must be 1 to 128 printable ASCII characters")
    return number if _OUR_ID.match(text) and (number := int(text, 16)) < 2**63 else 0
