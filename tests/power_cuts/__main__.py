"""`python -m tests.power_cuts`: power cuts of a real server, as many as one likes."""

import argparse
import logging
import re
import sys
from collections import Counter
from pathlib import Path

from tests.power_cuts.campaign import processors, run


def _kind(refusal: str) -> str:
    """What was refused, whatever it was asked for."""
    return re.sub(r"'[^']*'", "'...'", refusal).partition(". ")[0]


def main() -> int:
    """Make the cuts that the command line asks for; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="power-cuts", description=__doc__)
    parser.add_argument("--cuts", type=int, default=1000)
    parser.add_argument("--each", type=int, default=100, help="cuts of one workload")
    parser.add_argument("--seed", type=int, default=0, help="of the first workload")
    parser.add_argument("--lives", type=int, default=3, help="of the server in one workload")
    parser.add_argument("--seconds", type=float, default=4.0, help="that the last life takes")
    parser.add_argument("--workers", type=int, default=processors(), help="servers at a time")
    parser.add_argument("--keep", type=Path, help="for disks on which something is broken")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of clients whose server was killed
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    outcome = run(
        options.cuts, options.seed, each=options.each, lives=options.lives,
        seconds=options.seconds, workers=options.workers, keep=options.keep,
        say=lambda text: print(text, flush=True),
    )  # fmt: skip
    for text in outcome.alarms:
        print(f"reported, and nothing promised is missing: {text}")
    for text in outcome.escaped:
        print(f"not as the trace says: {text}")
    for what, count in Counter(_kind(text) for text in outcome.loads).most_common():
        print(f"refused {count} times: {what}")
    print(
        f"{outcome.cuts} cuts, {len(outcome.broken)} broken promises, "
        f"{len(outcome.alarms)} losses reported of what nobody was promised"
    )
    return 1 if outcome.broken or outcome.escaped else 0


if __name__ == "__main__":
    sys.exit(main())
