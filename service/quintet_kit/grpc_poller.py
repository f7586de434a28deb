"""Import this first, before anything imports grpc: grpc then does socket I/O on one thread of its own.

Since 1.80 grpc does it on a pool of threads, and every message crosses two more threads on each side; for one message
there and one back over a unix socket that is 0.24 ms instead of 0.09 ms (docs/adr). grpc reads the variable when it is
first imported, and never again. A version that no longer knows the switch ignores it.
"""

from quintet_kit.settings import set_default_variable

set_default_variable("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
