"""Who may do what: bearer tokens, each bound to namespaces and verbs.

The tokens file is TOML, one table for each token:

    [[token]]
    name = "billing"                      # for logs
    sha256 = "9f86d08..."                 # of the token, in hexadecimal; or token = "..." in the clear
    namespaces = ["billing", "billing-*"] # patterns with * and ?; ["*"] is all
    verbs = ["enqueue", "count"]          # ["*"] is all
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from quintet_core.domain.verbs import (
    ADMIN_VERBS,
    EVENT_VERBS,
    METRICS_VERBS,
    QUEUE_VERBS,
    STREAM_VERBS,
    TABLE_VERBS,
)

VERBS = frozenset((*QUEUE_VERBS, *TABLE_VERBS, *EVENT_VERBS, *METRICS_VERBS, *STREAM_VERBS, *ADMIN_VERBS))
_ALL = "*"
_FIELDS = {"name", "token", "sha256", "namespaces", "verbs"}


@dataclass(frozen=True, slots=True)
class Access:
    """What one caller may do."""

    name: str
    namespaces: tuple[str, ...]
    verbs: frozenset[str]

    def allows(self, verb: str, namespace: str) -> bool:
        """Whether the verb is allowed on things of the namespace."""
        return self.allows_verb(verb) and self.sees(namespace)

    def allows_verb(self, verb: str) -> bool:
        """Whether the verb is allowed on something at all."""
        return verb in self.verbs or _ALL in self.verbs

    def permits(self, verb: str, namespace: str | None) -> bool:
        """Whether a verb may be used on a namespace; None: on none, or on all that the caller sees."""
        return self.allows_verb(verb) if namespace is None else self.allows(verb, namespace)

    def sees(self, namespace: str) -> bool:
        """Whether the namespace is the caller's."""
        return any(pattern == _ALL or fnmatchcase(namespace, pattern) for pattern in self.namespaces)

    @property
    def sees_all(self) -> bool:
        """Whether every namespace is the caller's."""
        return _ALL in self.namespaces

    @property
    def unlimited(self) -> bool:
        """Whether nothing needs to be asked."""
        return _ALL in self.verbs and _ALL in self.namespaces


EVERYTHING = Access("local", (_ALL,), frozenset((_ALL,)))
"""Of whoever can open the unix socket, and of everybody where no tokens are configured."""

_CURRENT: ContextVar[Access] = ContextVar("quintet_access", default=EVERYTHING)


def current_access() -> Access:
    """What the caller of the RPC that is being served may do."""
    return _CURRENT.get()


def admit(access: Access) -> None:
    """For the rest of this RPC, the caller has this access."""
    _CURRENT.set(access)


class Tokens:
    """The tokens of a file, by their SHA-256."""

    def __init__(self, by_digest: Mapping[bytes, Access]) -> None:
        self._by_digest = by_digest

    @classmethod
    def load(cls, path: Path) -> Tokens:
        """Raises ValueError naming every fault of the file."""
        try:
            tables = tomllib.loads(path.read_text()).get("token", [])
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ValueError(f"{path}: {error}") from None
        if not isinstance(tables, list) or not tables:
            raise ValueError(f"{path}: holds no [[token]]")
        faults: list[str] = []
        by_digest: dict[bytes, Access] = {}
        for place, table in enumerate(tables, start=1):
            found = _faults(table)
            faults += (f"{path}: token {place}: {fault}" for fault in found)
            if not found:
                by_digest[_digest(table)] = _access(table, place)
        if faults:
            raise ValueError("\n".join(faults))
        return cls(by_digest)

    def access_of(self, authorization: str) -> Access | None:
        """The access behind an `authorization` header; None when it holds no token of ours."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer":
            return None
        # Looking up a digest tells nothing of a token by its timing.
        return self._by_digest.get(hashlib.sha256(token.strip().encode()).digest())


def _faults(table: object) -> list[str]:
    if not isinstance(table, dict):
        return ["must be a table"]
    faults = [f"{field} is unknown" for field in sorted(set(table) - _FIELDS)]
    if ("token" in table) == ("sha256" in table):
        faults.append("needs either token or sha256")
    if "token" in table and not (isinstance(table["token"], str) and table["token"]):
        faults.append("token must be text")
    if "sha256" in table and not re.fullmatch(r"[0-9a-fA-F]{64}", str(table["sha256"])):
        faults.append("sha256 must be 64 hexadecimal digits")
    for field in ("namespaces", "verbs"):
        if not _is_words(table.get(field)):
            faults.append(f"{field} must be a list of words")
        elif field == "verbs":
            faults += (f"verb {verb!r} is unknown" for verb in table["verbs"] if verb not in VERBS | {_ALL})
    return faults


def _is_words(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(word, str) for word in value)


def _digest(table: Mapping[str, str]) -> bytes:
    if "sha256" in table:
        return bytes.fromhex(table["sha256"])
    return hashlib.sha256(table["token"].encode()).digest()


def _access(table: Mapping[str, list[str]], place: int) -> Access:
    name = str(table.get("name", f"token {place}"))
    return Access(name, tuple(table["namespaces"]), frozenset(table["verbs"]))
