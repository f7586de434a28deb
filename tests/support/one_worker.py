"""How tests are dealt out to the workers of a parallel run."""

from __future__ import annotations

from typing import Any

from xdist.scheduler.loadfile import LoadFileScheduling  # type: ignore[import-untyped]

ONE_WORKER = "tests/spark"
# These do not: they start drivers of their own.
ALONE = ("tests/spark/test_pipeline.py",)
# What takes longest is begun first, or all others wait for it in the end.
LONGEST = (*ALONE, "tests/monitoring/test_live.py", "tests/faults/test_exactly_once.py", ONE_WORKER)


class FilesAndOneFolder(LoadFileScheduling):  # type: ignore[misc]
    """The tests of a file stay together, and those of all files of ONE_WORKER: they share a Spark session.

    LONGEST are given out first.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(f"{ONE_WORKER}/") and not nodeid.startswith(ALONE):
            return ONE_WORKER
        return str(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: Any) -> None:
        for unit in LONGEST:
            if unit in self.workqueue:
                self.workqueue.move_to_end(unit, last=False)
        super()._assign_work_unit(node)
