"""Lives of simulated groups, as many as wanted: `python -m slipstream.testing --lives 1000`.

Half of them are of the log alone, half have engines and clients. What is violated is shown with its
seed, which gives the same life again.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence

from slipstream.testing.ledger import ViolationError
from slipstream.testing.simulated_engines import SimulatedEngines
from slipstream.testing.simulated_group import SimulatedGroup

KINDS = ((1, False), (2, True), (3, False), (3, True), (5, False))  # size, a register outside


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them; 1 if anything was violated."""
    parser = argparse.ArgumentParser(prog="python -m slipstream.testing", description=__doc__)
    parser.add_argument("--lives", type=int, default=200, help="how many lives")
    parser.add_argument("--seed", type=int, default=0, help="the first of as many seeds")
    parser.add_argument("--seconds", type=float, default=6.0, help="of faults in each life")
    asked = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    for seed in range(asked.seed, asked.seed + asked.lives):
        (size, outside), damage = KINDS[seed // 2 % len(KINDS)], seed % 4 > 1
        group: SimulatedGroup
        if seed % 2:
            group = SimulatedEngines(seed, size, damage, outside=outside)
        else:
            group = SimulatedGroup(seed, size, damage, trims=True, outside=outside)
        try:
            group.run(asked.seconds)
        except ViolationError as error:
            counts["violated"] += 1
            life = f"{type(group).__name__}({seed}, {size}, damage={damage}, outside={outside})"
            print(f"{life}: {error}", flush=True)
        counts["crashes"] += sum("crashes" in line for line in group.story)
        counts["checkpoints installed"] += group.installs
        if isinstance(group, SimulatedEngines):
            counts["stores opened by leaders"] += group.opened
            counts["calls"] += len(group.history.calls)
            counts["calls answered"] += group.history.answered
        else:
            counts["appends answered"] += len(group.ledger.answered)
    told = ", ".join(f"{count} {what}" for what, count in counts.items() if what != "violated")
    print(f"{asked.lives} lives: {told}; {counts['violated']} violated something")
    return 1 if counts["violated"] else 0


if __name__ == "__main__":
    sys.exit(main())
