"""Whether a reply means that the change is on disk: what Redis says of itself, and the rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

APPEND_ONLY = "appendonly"
APPEND_FSYNC = "appendfsync"
EVICTION_POLICY = "maxmemory-policy"
NO_FSYNC_ON_REWRITE = "no-appendfsync-on-rewrite"
WANTED = {APPEND_ONLY: "yes", APPEND_FSYNC: "always", EVICTION_POLICY: "noeviction", NO_FSYNC_ON_REWRITE: "no"}
"""What each of Redis's settings must be."""


@dataclass(frozen=True, slots=True)
class Durability:
    """What was found. `settings` are Redis's own words; one that could not be read is missing."""

    settings: Mapping[str, str]
    append_only_enabled: bool
    last_write_status: str
    checked_at_ms: int

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """What keeps a reply from meaning "on disk", in words; empty when nothing does."""
        found = [_weakness(name, wanted, self.settings.get(name)) for name, wanted in WANTED.items()]
        if not self.append_only_enabled:
            found.append("the append-only file is not being written")
        if self.last_write_status != "ok":
            found.append(f"the last write to the append-only file is {self.last_write_status or 'unknown'}, not ok")
        return tuple(weakness for weakness in found if weakness)

    @property
    def durable(self) -> bool:
        """Whether a reply means that the change is on disk."""
        return not self.weaknesses


def _weakness(name: str, wanted: str, found: str | None) -> str:
    if found == wanted:
        return ""
    if found is None:
        return f"{name} is unknown (Redis does not tell), must be {wanted}"
    return f"{name} is {found}, must be {wanted}"
