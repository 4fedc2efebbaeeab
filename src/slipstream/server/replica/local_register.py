"""The register of a group whose servers are all on this machine.

Two servers need one outside of the group. It is a file beside their stores: it needs no other
process and no other package, and whichever of the two fails, the other one can reach it. It is lost
with the machine's disk, as both servers are.
"""

from pathlib import Path

from slipstream.server.cluster_options import GROUP_SIZES, RegisterOptions

LOCAL_SIZES = tuple(sorted({*GROUP_SIZES, 2}))
DIRECTORY = "register"


def local_register(directory: str, size: int) -> RegisterOptions | None:
    """Where a group of `size` servers has its register whose stores are in `directory`; None if it
    is the servers' own. A group that has begun as two keeps it when it grows."""
    place = Path(directory).absolute() / DIRECTORY
    if size != 2 and not place.is_dir():
        return None
    return RegisterOptions(url=place.as_uri())
