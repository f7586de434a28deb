"""Records that are gone before they were read: told of, or an error."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from quintet_spark.source.link import DataLossError
from quintet_spark.source.options import Options

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loss:
    """Records (after, before first) of a partition are gone."""

    log: str
    partition: int
    after: int
    first: int

    @property
    def count(self) -> int:
        """How many."""
        return self.first - 1 - self.after

    def __str__(self) -> str:
        return (
            f"{self.count} records of partition {self.partition} of the {self.log} log are gone: offsets "
            f"{self.after + 1} to {self.first - 1} were trimmed before they were read; the oldest held is {self.first}"
        )


def meet_loss(loss: Loss, options: Options) -> None:
    """Raises DataLossError, or logs the loss where it is allowed."""
    if options.fail_on_data_loss:
        raise DataLossError(f"{loss}. To go on without them, set failOnDataLoss to false")
    _log.warning("%s; skipped", loss)
