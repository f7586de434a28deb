"""The parts that `quintet up` runs, as data: what each is called, what it listens on, how it is told."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quintet_cli.up.settings import UpSettings

METRICS = "metrics"
CORE = "core"


@dataclass(frozen=True, slots=True)
class Listener:
    """One address of a part: its name in the ready file, the variable that sets its port, and what it speaks."""

    name: str
    port_variable: str
    port: int
    speaks: str


@dataclass(frozen=True, slots=True)
class Part:
    """A Python child process: `python -m <module> <arguments>` with an environment of its own."""

    name: str
    module: str
    listeners: tuple[Listener, ...]
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> tuple[str, ...]:
        return (sys.executable, "-m", self.module, *self.arguments)

    def ports(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """Port variables; an address `chosen` in an earlier life of the part is kept, so that clients find it again."""
        return {
            listener.port_variable: chosen.get(listener.name, f":{listener.port}").rpartition(":")[2]
            for listener in self.listeners
        }


@dataclass(frozen=True, slots=True)
class _Adapter:
    """An adapter's place in the world: its metrics port is the core's plus `metrics_place`."""

    name: str
    metrics_place: int
    doors: tuple[tuple[str, str, str, str], ...]
    """Name of each listener, the variable that sets its port, the setting here that has it, and what it speaks."""
    told: tuple[tuple[str, str], ...] = ()
    """Variables that another adapter reads in a sense of its own, and the settings here that have them for this one."""


_ADAPTERS = (
    _Adapter("text-queue", 1, (("text-queue", "QUINTET_PORT", "text_queue_port", "ADD, GET, ACK, IN"),)),
    _Adapter("job-centre", 2, (("job-centre", "QUINTET_PORT", "job_centre_port", "JSON, one object per line"),)),
    _Adapter(
        "taskflux",
        3,
        (("taskflux", "QUINTET_PORT", "taskflux_port", "binary packets"),),
        (("QUINTET_DIALECT", "taskflux_dialect"),),
    ),
    _Adapter(
        "zmq-kv",
        4,
        (
            ("zmq-kv", "QUINTET_PORT", "zmq_kv_port", "ZeroMQ: CREATE_TABLE, DELETE_TABLE, UPDATE, DELETE, GET"),
            ("zmq-kv-pub", "QUINTET_PUB_PORT", "zmq_kv_pub_port", "ZeroMQ: UPDATED, DELETED, as they happen"),
        ),
    ),
    _Adapter(
        "etzel",
        5,
        (
            ("etzel", "QUINTET_PORT", "etzel_port", "JSON by WebSocket: SUB, ISLP, PUB, FET, ACK"),
            ("etzel-lines", "QUINTET_LINES_PORT", "etzel_lines_port", "the same, one object per line"),
        ),
    ),
)


def parts(settings: UpSettings, redis_url: str, core_socket: Path) -> tuple[Part, tuple[Part, ...]]:
    """The core, and the adapters in front of it."""
    core = Part(
        name=CORE,
        module="quintet_core",
        listeners=(
            Listener("core-grpc", "QUINTET_CORE_PORT", _port(settings, settings.core_port), "gRPC quintet.v1"),
            _metrics(settings, 0),
        ),
        environment={
            "QUINTET_REDIS_URL": redis_url,
            "QUINTET_CORE_HOST": settings.host,
            "QUINTET_CORE_SOCKET": str(core_socket),
        },
    )
    return core, tuple(
        Part(
            name=adapter.name,
            module="quintet_adapters",
            arguments=(adapter.name,),
            listeners=(*_doors(settings, adapter), _metrics(settings, adapter.metrics_place)),
            environment={
                "QUINTET_CORE_TARGET": f"unix:{core_socket}",
                "QUINTET_HOST": settings.host,
                "QUINTET_NAMESPACE": settings.namespace,
                **{variable: str(getattr(settings, setting)) for variable, setting in adapter.told},
            },
        )
        for adapter in _ADAPTERS
    )


def _doors(settings: UpSettings, adapter: _Adapter) -> Iterator[Listener]:
    for name, variable, setting, speaks in adapter.doors:
        yield Listener(name, variable, _port(settings, getattr(settings, setting)), speaks)


def _metrics(settings: UpSettings, place: int) -> Listener:
    first = settings.metrics_port
    return Listener(METRICS, "QUINTET_METRICS_PORT", _port(settings, first + place if first else 0), "metrics, health")


def _port(settings: UpSettings, port: int) -> int:
    return 0 if settings.any_port or port == 0 else port + settings.port_offset
