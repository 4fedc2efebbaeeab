"""`slipstream serve` with small files: a short workload turns, compacts and checkpoints often.

Everything else is the server as people run it.
"""

import sys
from functools import partial

from slipstream.cli.main import main
from slipstream.engine.commit import state_commit
from slipstream.log.stream_store import Store
from slipstream.server import runtime

SEGMENT_BYTES = 64 * 1024
LOG_BYTES = 256 * 1024  # of each file of the commit log
CHECKPOINT_NS = 200_000_000

if __name__ == "__main__":
    small = partial(Store, segment_bytes=SEGMENT_BYTES, log_bytes=LOG_BYTES)
    vars(runtime)["Store"] = small
    state_commit.CHECKPOINT_NS = CHECKPOINT_NS
    sys.argv[1:1] = ["serve"]
    sys.exit(main())
