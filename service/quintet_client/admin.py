"""What an operator is told."""

from __future__ import annotations

from dataclasses import dataclass

from quintet.v1 import admin_service_pb2


@dataclass(frozen=True, slots=True)
class Durability:
    """Whether a reply means that the change is on disk, and what the core found."""

    durable: bool
    weak_allowed: bool
    weaknesses: tuple[str, ...]
    append_only: bool
    append_fsync: str
    eviction_policy: str
    checked_at_ms: int
    append_only_last_write_status: str

    @classmethod
    def of_wire(cls, response: admin_service_pb2.GetDurabilityResponse) -> Durability:
        """The value of the API's message."""
        return cls(
            durable=response.durable,
            weak_allowed=response.weak_allowed,
            weaknesses=tuple(response.weaknesses),
            append_only=response.append_only,
            append_fsync=response.append_fsync,
            eviction_policy=response.eviction_policy,
            checked_at_ms=response.checked_at_ms,
            append_only_last_write_status=response.append_only_last_write_status,
        )


@dataclass(frozen=True, slots=True)
class CoreInfo:
    """The core that answered."""

    version: str
    library_version: int
    partitions: int
    redis_version: str
    replica: str
    started_at_ms: int
    sessions: int
    parked_waits: int
    ready: bool
    draining: bool

    @classmethod
    def of_wire(cls, response: admin_service_pb2.GetInfoResponse) -> CoreInfo:
        """The value of the API's message."""
        return cls(**{name: getattr(response, name) for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class NamespaceSettings:
    """What holds for all queues and tables of a namespace. `job_events_off`: changes of jobs are counted, but not
    written to the event log; else they may carry payloads, and those of rows values."""

    job_events_off: bool = False
    events_carry_payloads: bool = False
    events_carry_values: bool = False

    @classmethod
    def of_wire(cls, settings: admin_service_pb2.NamespaceSettings) -> NamespaceSettings:
        """The settings of the API's message."""
        return cls(settings.job_events_off, settings.events_carry_payloads, settings.events_carry_values)

    def to_wire(self) -> admin_service_pb2.NamespaceSettings:
        """The API's message."""
        return admin_service_pb2.NamespaceSettings(
            job_events_off=self.job_events_off,
            events_carry_payloads=self.events_carry_payloads,
            events_carry_values=self.events_carry_values,
        )
