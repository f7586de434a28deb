"""What holds for all queues and tables of a namespace."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NamespaceSettings:
    """As quintet.v1.NamespaceSettings."""

    job_events_off: bool = False
    events_carry_payloads: bool = False
    events_carry_values: bool = False
