"""One Redis and any number of cores on it, as real processes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.support.stack import CorePart, RedisPart


class Cores:
    """None of them started. `environment`: settings of every core beyond the usual."""

    def __init__(self, **environment: str) -> None:
        # Short-named: the path of a unix socket may have 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="quintet-"))
        self.redis = RedisPart(self.folder)
        self.cores: list[CorePart] = []
        self._environment = environment

    def core(self, **environment: str) -> CorePart:
        """One more."""
        core = CorePart(self.folder, self.redis, name=f"core-{len(self.cores)}")
        core.environment = {**self._environment, **environment}
        self.cores.append(core)
        return core

    def close(self) -> None:
        """Everything ends, and what it has written goes."""
        for part in (*self.cores, self.redis):
            part.kill9()
        shutil.rmtree(self.folder, ignore_errors=True)
