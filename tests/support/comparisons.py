"""State machines that compare Redis with a model, run on a server.

QUINTET_TEST_EXAMPLES sets how many runs of operations are tried (default 120). With QUINTET_TEST_SHRINK set, a failing
run is made as short as can be, which takes minutes.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

EXAMPLES = int(os.environ.get("QUINTET_TEST_EXAMPLES", "120"))
_STEPS = 60
_PHASES = [
    Phase.explicit,
    Phase.reuse,
    Phase.generate,
    *([Phase.shrink] if os.environ.get("QUINTET_TEST_SHRINK") else []),
]


def compare(machine: type[RuleBasedStateMachine], examples: int = EXAMPLES) -> None:
    """As many runs of a state machine. Raises what it raises."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=_STEPS,
            print_blob=True,
            phases=_PHASES,
            suppress_health_check=list(HealthCheck),
        ),
    )
