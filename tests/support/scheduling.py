"""How tests are dealt out to the workers of a parallel run."""

from __future__ import annotations

from typing import Any

from xdist.scheduler.loadfile import LoadFileScheduling  # type: ignore[import-untyped]

SESSION = "tests/spark"
"""Its files share a Spark session."""
DRIVERS = ("tests/faults/test_exactly_once.py", "tests/monitoring/test_live.py", "tests/spark/test_pipeline.py")
"""They start drivers of their own, which take all the processors there are: never two at a time."""
_ALL = 1_000_000
WORTH = {
    SESSION: _ALL,
    DRIVERS[0]: _ALL - 1,
    "tests/faults/test_etzel_load.py": 40,
    "tests/faults/test_mixed_load.py": 40,
    "tests/faults/test_taskflux_load.py": 40,
    "tests/load/test_watches.py": 40,
    "tests/property/test_model.py": 40,
    "tests/property/test_snapshots.py": 40,
    "tests/property/test_table_model.py": 40,
}
"""As how many tests these count. What has most is begun first, and single tests that take long would come last: all but
one worker would wait for them."""


class FilesTogether(LoadFileScheduling):  # type: ignore[misc]
    """The tests of a file stay together in one worker, as do those of the files of SESSION and those of DRIVERS.

    Those with most tests are given out first, as xdist has it; see WORTH.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(DRIVERS):
            return DRIVERS[0]
        if nodeid.startswith(f"{SESSION}/"):
            return SESSION
        return str(super()._split_scope(nodeid))

    def _assign_work_unit(self, node: Any) -> None:
        most = max(self.workqueue, key=lambda unit: WORTH.get(unit, len(self.workqueue[unit])))
        self.workqueue.move_to_end(most, last=False)
        super()._assign_work_unit(node)
