"""The garbage collector, for processes whose objects come by the thousand and are no cycles."""

from __future__ import annotations

import gc

# The default looks for cycles every 700 new objects; a batch of operations has thousands.
_THRESHOLDS = (50_000, 20, 50)


def relax() -> None:
    """Look for cycles less often."""
    gc.set_threshold(*_THRESHOLDS)


def freeze() -> None:
    """What was made so far stays for good: never look at it again."""
    gc.collect()
    gc.freeze()
