"""`slipstream serve` of a group with small files and a short log, so that a short round turns,
compacts and trims often, and servers need checkpoints.

Everything else is the server as people run it.
"""

import sys
from functools import partial

from slipstream.cli.main import main
from slipstream.engine.commit import state_commit
from slipstream.log.stream_store import Store
from slipstream.server import runtime
from slipstream.server.group import opening
from slipstream.server.group.host import GroupHost
from slipstream.server.group.store import GroupStore
from slipstream.server.replica import replica

SEGMENT_BYTES = 64 * 1024
LOG_BYTES = 256 * 1024  # of each file of the commit log
CHECKPOINT_NS = 200_000_000
GROUP_SEGMENT_BYTES = 256 * 1024
GROUP_KEEP_BYTES = 64 * 1024  # of entries, for servers that are behind
KEEP_SECONDS = 0.3

if __name__ == "__main__":
    vars(runtime)["Store"] = partial(Store, segment_bytes=SEGMENT_BYTES, log_bytes=LOG_BYTES)
    vars(opening)["GroupStore"] = partial(GroupStore, segment_bytes=GROUP_SEGMENT_BYTES)
    vars(opening)["GroupHost"] = partial(GroupHost, keep_bytes=GROUP_KEEP_BYTES)
    vars(replica)["KEEP_SECONDS"] = KEEP_SECONDS
    state_commit.CHECKPOINT_NS = CHECKPOINT_NS
    sys.argv[1:1] = ["serve"]
    sys.exit(main())
