"""How tests are dealt out to the workers of a parallel run."""

from __future__ import annotations

from typing import Any

from xdist.scheduler.loadfile import LoadFileScheduling  # type: ignore[import-untyped]

SESSION = "tests/spark"
"""Its files share a Spark session."""
DRIVERS = ("tests/faults/test_exactly_once.py", "tests/monitoring/test_live.py", "tests/spark/test_pipeline.py")
"""They start drivers of their own, which take all the processors there are: never two at a time."""
LONGEST = (
    SESSION,
    DRIVERS[0],
    "tests/faults/test_mixed_load.py",
    "tests/faults/test_taskflux_load.py",
    "tests/faults/test_etzel_load.py",
    "tests/load/test_watches.py",
    "tests/property/test_table_model.py",
    "tests/property/test_model.py",
    "tests/property/test_snapshots.py",
)
"""Begun first. Others go by how many tests they have, and of these, most of which have one, the last would be waited
for."""


class FilesTogether(LoadFileScheduling):  # type: ignore[misc]
    """The tests of a file stay together in one worker, as do those of the files of SESSION and those of DRIVERS.

    LONGEST are given out first.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(DRIVERS):
            return DRIVERS[0]
        if nodeid.startswith(f"{SESSION}/"):
            return SESSION
        return str(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: Any) -> None:
        for unit in reversed(LONGEST):
            if unit in self.workqueue:
                self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)
