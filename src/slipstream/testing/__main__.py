"""Lives of simulated servers and groups: `python -m slipstream.testing --lives 1000`.

What is violated is shown with its life, which its seed gives again.
"""

import argparse
import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from slipstream.testing.lives import life_of_group, life_of_server

LIVES = {"servers": life_of_server, "groups": life_of_group}
TAKEN_AT_ONCE = 20  # lives, by a process


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m slipstream.testing", description=__doc__)
    parser.add_argument("--of", choices=list(LIVES), action="append", help="whose; else of both")
    parser.add_argument("--lives", type=int, default=200, help="how many of each")
    parser.add_argument("--seed", type=int, default=0, help="the first of as many seeds")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at once")
    asked = parser.parse_args(arguments)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.processes, mp_context=spawn) as pool:
        seeds = range(asked.seed, asked.seed + asked.lives)
        return max([_run(pool, of, seeds) for of in asked.of or LIVES])


def _run(pool: ProcessPoolExecutor, of: str, seeds: range) -> int:
    counts: Counter[str] = Counter()
    violated = 0
    for outcome in pool.map(LIVES[of], seeds, chunksize=TAKEN_AT_ONCE):
        counts += outcome.counts
        if outcome.violation:
            violated += 1
            print(outcome.violation, flush=True)
    told = ", ".join(f"{count} {what}" for what, count in counts.items())
    print(f"{len(seeds)} lives of {of}: {told}; {violated} violated something", flush=True)
    return 1 if violated else 0


if __name__ == "__main__":
    sys.exit(main())
