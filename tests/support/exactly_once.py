"""A run in which an archive job follows a log of millions of events while it, the core and Redis are killed at random
points; then whether the archive is the log, event by event, and the log a possible one.

    python -m tests.support.exactly_once --events 10000000 --faults 30 --seed 7
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import click
import grpc
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from quintet.v1.event_service_pb2 import CommitOffsetRequest, ListPartitionsRequest, OpenConsumerRequest, Partition
from quintet.v1.event_service_pb2_grpc import EventServiceStub

from tests.support.event_load import CORE_SETTINGS, EventLoad, Told
from tests.support.event_record import Recorder
from tests.support.event_verdict import differences, illegal_histories
from tests.support.lake import Archive
from tests.support.rolled_up import rollup_wrong
from tests.support.spark_driver import SparkDriver
from tests.support.spark_options import compiling
from tests.support.stack import Stack

PARTITIONS = 16
NOTHING_TRIMMED = {"QUINTET_EVENTS_TAIL": "10000000", "QUINTET_EVENTS_CAP": "1000000000"}
TRIMMED_AT_ONCE = {"QUINTET_EVENTS_TAIL": "0", "QUINTET_EVENTS_KEEP_MS": "0"}
"""Whatever no consumer needs goes."""
STALL_SECONDS_MAX = 300.0
_POLL_SECONDS = 0.25
_BATCHES = ("--archive-interval-s", "8", "--archive-events-max", "200000")
ARCHIVE, _RECORD = "archive", "record"
"""Consumers."""


@dataclass
class Fault:
    """What is done once `gauge`, events written or archived, has come to `threshold`."""

    name: str
    gauge: str
    threshold: int


@dataclass
class Verdict:
    """What came of a run; all is well when `wrong` is empty."""

    wrong: list[str]
    events: int
    done: Counter[str]
    fell: int
    """How often the driver ended by itself, and was started again."""
    figures: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        done = ", ".join(f"{name}: {count}" for name, count in sorted(self.done.items()))
        figures = ", ".join(f"{name} {value:,.0f}" for name, value in self.figures.items())
        return f"{self.events:,} events; {done}; the driver fell {self.fell} times; {figures}"


class Archiving:
    """A stack without adapters, writers and an archive job as its own process, each of which can be killed."""

    def __init__(self, seed: int, *, trims: bool = False, writers: int = 4) -> None:
        self.stack = Stack(**CORE_SETTINGS | (TRIMMED_AT_ONCE if trims else NOTHING_TRIMMED))
        self.trims = trims
        self.core, self.redis = self.stack.core, self.stack.redis
        self.lake = self.stack.folder / "lake"
        self.archive = Archive(self.lake / "events")
        self.driver = self.new_driver("archive")
        self.load = EventLoad(self.core.target, seed, writers)
        self._channel = grpc.insecure_channel(self.core.target)
        self._service = EventServiceStub(self._channel)
        self._written = self._epoch = 0
        self._ends: dict[int, int] = {}
        self._recorder = Recorder(str(self.redis.path), PARTITIONS)
        self._recorded = [0] * PARTITIONS

    @property
    def arguments(self) -> tuple[str, ...]:
        """What every job of this lake is told."""
        return "--endpoint", self.core.target, "--lake", str(self.lake), "--log-format", "json", "--memory", "1g"

    def new_driver(self, name: str) -> SparkDriver:
        """An archive job on the lake, not started."""
        driver = SparkDriver("archive", self.stack.folder, *self.arguments, *_BATCHES, name=name)
        driver.environment.update(compiling())
        self.stack.extra.append(driver)
        return driver

    def __enter__(self) -> Archiving:
        try:
            self.redis.start()
            self.core.start()
            if self.trims:
                # The archive job takes longer to start than the log to be trimmed.
                self._service.OpenConsumer(OpenConsumerRequest(consumer=ARCHIVE))
                self._epoch = self._service.OpenConsumer(OpenConsumerRequest(consumer=_RECORD)).epoch
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            sys.stderr.write(self.stack.logs())  # shown where the test fails
        self._channel.close()
        self.stack.close()

    def partitions(self, consumer: str = "") -> list[Partition]:
        """As the core tells them. Raises grpc.RpcError when it is away."""
        request = ListPartitionsRequest(consumer=consumer)
        return list(self._service.ListPartitions(request, timeout=10).partitions)

    def written(self) -> int:
        """Events in the log, as the core told last."""
        with suppress(grpc.RpcError):
            self._written = sum(partition.last_offset for partition in self.partitions())
        return self._written

    def record(self) -> None:
        """Read the log on, so that it may be trimmed up to here."""
        self._recorder.read()
        for partition, offset in enumerate(self._recorder.last_offsets):
            if offset == self._recorded[partition]:
                continue
            with suppress(grpc.RpcError):
                request = CommitOffsetRequest(consumer=_RECORD, partition=partition, offset=offset, epoch=self._epoch)
                self._service.CommitOffset(request, timeout=10)
                self._recorded[partition] = offset

    def log(self) -> pa.Table:
        """All of it, as Redis held it."""
        self._recorder.read()
        return self._recorder.table()

    def is_archived(self) -> bool:
        """Whether all that has happened is in the lake."""
        count = self.archive.count()
        try:
            partitions = self.partitions()
        except grpc.RpcError:
            return False
        self._ends = {each.partition: each.last_offset for each in partitions}
        return count >= sum(self._ends.values())

    def wrong(self) -> tuple[list[str], pa.Table]:
        """What is wrong with the archive, or with the log itself, one line each; and the log.

        To be called once everything is archived. A log is never quite at rest: what came since is not missed.
        """
        archive = self.archive.events()
        log = self.log()
        reached = dict.fromkeys(self._ends, 0) | _last_offsets(archive)
        short = [
            f"partition {each} is archived up to {reached[each]}, not {end}"
            for each, end in self._ends.items()
            if reached[each] < end
        ]
        limits = np.array([reached[each] for each in range(PARTITIONS)])
        known = log.filter(pa.array(log["offset"].to_numpy() <= limits[log["partition"].to_numpy()]))
        wrong = [
            *short,
            *differences(known, archive),
            *self.archive.misplaced(),
            *illegal_histories(log, PARTITIONS),
            *forgotten(log, self.load.told),
        ]
        return wrong, log


def _last_offsets(events: pa.Table) -> dict[int, int]:
    grouped = events.group_by("partition").aggregate([("offset", "max")])
    return dict(zip(grouped["partition"].to_pylist(), grouped["offset_max"].to_pylist(), strict=True))


class Run:
    """`events` events or some more are written, `faults` parts are killed meanwhile; see `judged`.

    With `rolls_up` the rollup job then takes all of it, killed once on its way.
    """

    def __init__(
        self,
        scene: Archiving,
        events: int,
        faults: int,
        seed: int,
        announce: Callable[[str], None],
        *,
        rolls_up: bool = False,
    ) -> None:
        self._scene = scene
        self._rolls_up = rolls_up
        self._events = events
        self._choice = random.Random(seed)
        self._announce = announce
        self._deeds = self._kills()
        self._faults = self._planned(faults)
        self._done: Counter[str] = Counter()
        self._fell = 0
        self._figures: dict[str, float] = {}

    def _kills(self) -> dict[str, Callable[[], object]]:
        scene = self._scene
        return {
            "kill the driver, its JVM and its workers": scene.driver.kill9,
            "kill the core": scene.core.restart,
            "kill Redis": scene.redis.restart,
            "kill the driver's JVM": scene.driver.kill9_jvm,
            "kill the core and Redis": self._kill_store,
            "kill everything": self._kill_everything,
            "kill the driver's own process": scene.driver.kill9_python,
            "kill the driver's workers": scene.driver.kill9_workers,
        }

    def _kill_store(self) -> None:
        self._scene.core.kill9()
        self._scene.redis.restart()
        self._scene.core.start()

    def _kill_everything(self) -> None:
        self._scene.driver.kill9()
        self._kill_store()

    def _planned(self, count: int) -> list[Fault]:
        """Every fault as often as any other; those of the driver by what it has archived, the rest by either."""
        names = list(self._deeds)
        chosen = [names[number % len(names)] for number in range(count)]
        planned = []
        for name in chosen:
            gauge = "archived" if "driver" in name else self._choice.choice(("written", "archived"))
            planned.append(Fault(name, gauge, self._choice.randrange(int(self._events * 0.95))))
        return sorted(planned, key=lambda fault: fault.threshold)

    def judged(self) -> Verdict:
        """Write, kill, wait for the archive to have it all, and compare."""
        self._write_and_kill()
        rolled_up = rollup_wrong(self._scene, self._choice) if self._rolls_up else []
        left = [
            f"of a driver that was killed there is still {each}" for each in self._scene.driver.leftovers().values()
        ]
        self._scene.driver.kill9()
        started = time.perf_counter()
        wrong, log = self._scene.wrong()
        self._figures["seconds of judgement"] = time.perf_counter() - started
        return Verdict([*left, *rolled_up, *wrong], log.num_rows, self._done, self._fell, self._figures)

    def _write_and_kill(self) -> None:
        scene, started = self._scene, time.monotonic()
        scene.load.start()
        scene.driver.start()
        while scene.written() < self._events:
            self._step()
        scene.load.stop()
        self._figures["seconds of writing"] = time.monotonic() - started
        while self._faults or not scene.is_archived():
            self._step()
        self._figures["seconds until archived"] = time.monotonic() - started
        self._figures["operations refused or in doubt"] = scene.load.told.failures

    def _step(self) -> None:
        if self._scene.trims:
            self._scene.record()
        gauges = {"written": self._scene.written(), "archived": self._scene.archive.count()}
        self._watch_progress(gauges)
        due = next((fault for fault in self._faults if gauges[fault.gauge] >= fault.threshold), None)
        if due:
            self._faults.remove(due)
            time.sleep(self._choice.random())  # Any moment will do.
            self._announce(f"{gauges['written']:,} written, {gauges['archived']:,} archived: {due.name}")
            if self._deeds[due.name]() is not False:
                self._done[due.name] += 1
            elif gauges["archived"] < gauges["written"]:
                # The driver is still starting: later, then.
                self._faults.append(Fault(due.name, "archived", gauges["archived"] + 1))
            if "driver" in due.name or due.name == "kill everything":
                self._scene.driver.ensure_running()
        elif not self._scene.driver.is_running:
            self._fell += 1
            self._scene.driver.ensure_running()
        time.sleep(_POLL_SECONDS)

    _progress: tuple[float, dict[str, int]] = (0.0, {})

    def _watch_progress(self, gauges: dict[str, int]) -> None:
        now = time.monotonic()
        if gauges != self._progress[1]:
            self._progress = now, gauges
        elif now - self._progress[0] > STALL_SECONDS_MAX:
            raise AssertionError(f"nothing moves since {STALL_SECONDS_MAX:g} s: {gauges}\n{self._scene.stack.logs()}")


def forgotten(log: pa.Table, told: Told) -> list[str]:
    """What was acknowledged to writers and is not in the log, or is there twice."""
    wrong = []
    for kind, ids in (("job_enqueued", told.enqueued), ("job_acknowledged", told.acknowledged)):
        found = log.filter(pc.equal(log["kind"], kind))["job_id"].to_numpy()
        lost = np.setdiff1d(np.array(ids, np.int64), found)
        if len(lost):
            wrong.append(f"{len(lost)} of {len(ids)} acknowledged are not {kind} in the log, such as {lost[:3]}")
        if len(np.unique(found)) < len(found):
            wrong.append(f"some are {kind} twice in the log")
    return wrong


@click.command()
@click.option("--events", default=2_000_000, show_default=True, help="Events to write at the least.")
@click.option("--faults", default=8, show_default=True, help="Parts to kill, each kind of fault as often as any other.")
@click.option("--trim", is_flag=True, help="Keep of the log what is neither archived nor recorded here, and no more.")
@click.option("--rollup", is_flag=True, help="Then roll up all of it, and compare that, too.")
@click.option("--seed", type=int, help="Of a run to repeat.")
def main(events: int, faults: int, trim: bool, rollup: bool, seed: int | None) -> None:
    """Kill things while events are archived; exit code 1 when the archive is not the log."""
    seed = random.randrange(10**9) if seed is None else seed
    print(f"--events {events} --faults {faults} --seed {seed}", flush=True)
    if trim and rollup:
        raise click.UsageError("the rollup needs what --trim cuts: give one of them")
    with Archiving(seed, trims=trim) as scene:
        run = Run(scene, events, faults, seed, lambda line: print(f"  {line}", flush=True), rolls_up=rollup)
        verdict = run.judged()
    print(verdict)
    for line in verdict.wrong:
        print(f"  WRONG: {line}")
    sys.exit(1 if verdict.wrong else 0)


if __name__ == "__main__":
    main()
