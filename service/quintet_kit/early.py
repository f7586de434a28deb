"""Import this first in every process of Quintet: what must be so before anything else is imported.

- grpc does socket I/O on one thread of its own. Since 1.80 it does it on a pool of threads, and every message crosses
  two more threads on each side; for one message there and one back over a unix socket that is 0.24 ms instead of
  0.09 ms (docs/adr). grpc reads the variable when it is first imported, and never again. A version that no longer knows
  the switch ignores it.
- pydantic does not look for plugins in everything that is installed, which takes it as long as our settings.
- The garbage collector is relaxed: imports make objects by the ten thousand, and next to no garbage.
"""

from quintet_kit import collector
from quintet_kit.environment import set_default_variable

set_default_variable("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
set_default_variable("PYDANTIC_DISABLE_PLUGINS", "__all__")
collector.relax()
