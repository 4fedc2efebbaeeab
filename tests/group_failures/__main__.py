"""`python -m tests.group_failures`: failures of groups of real servers, as many as one likes."""

import argparse
import logging
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from tests.group_failures.faults import FAULTS, GENERAL, NAMED, Fault
from tests.group_failures.network import why_not
from tests.group_failures.rounds import Outcome, Round, play
from tests.group_failures.servers import build_clock
from tests.power_cuts.recorded_server import build_recorder

KINDS = ("slipstream", "nats-server", "nats-server-always")
PAIRS = 0.3  # the share of rounds in which two things fail


def main() -> int:
    """Play the rounds that the command line asks for; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="group-failures", description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--servers", type=int, choices=(3, 5), default=3)
    parser.add_argument("--against", choices=KINDS[1:], help="another program in the place of ours")
    parser.add_argument("--fault", choices=sorted(FAULTS), help="always this one")
    parser.add_argument("--named", action="store_true", help="the six named failures in turn")
    parser.add_argument("--keep", type=Path, help="for the stores of rounds that break something")
    options = parser.parse_args()
    if reason := why_not():
        print(reason)
        return 2
    logging.disable(logging.WARNING)  # of clients whose server was killed
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="group-failures-") as name:
        base = Path(name)
        build_recorder(base)
        build_clock(base)
        for number in range(options.rounds):
            seed = options.seed + number
            faults = _faults_of(seed, options.fault, is_named=options.named)
            one = Round(seed, faults, options.servers, options.against or "slipstream")
            try:
                outcome = play(one, base / f"round-{seed}", base)
            except Exception as error:  # the others are played, and the end says so
                print(f"{one.kind} seed {seed} could not be played: {error!r}", flush=True)
                totals["broken rounds"] += 1
                continue
            _say(outcome, totals)
            if outcome.verdict.counts and options.keep is not None:
                _keep(outcome, base / f"round-{seed}", options.keep)
            shutil.rmtree(base / f"round-{seed}", ignore_errors=True)
    print(", ".join(f"{count} {name}" for name, count in totals.items()))
    return 1 if totals["broken rounds"] else 0


def _faults_of(seed: int, wanted: str | None, *, is_named: bool) -> list[type[Fault]]:
    random = Random(f"{seed}/faults")
    if wanted:
        return [FAULTS[wanted]]
    if is_named:
        return [NAMED[seed % len(NAMED)]]
    return random.sample([*NAMED, *GENERAL], 2 if random.random() < PAIRS else 1)


def _say(outcome: Outcome, totals: "Counter[str]") -> None:
    print(outcome.line, flush=True)
    totals["rounds"] += 1
    totals["acknowledged"] += outcome.verdict.acknowledged
    totals.update(outcome.verdict.counts)
    if outcome.verdict.counts:
        totals["broken rounds"] += 1
        for text in (*outcome.notes, *outcome.verdict.words):
            print(f"    {text}", flush=True)


def _keep(outcome: Outcome, stores: Path, where: Path) -> None:
    where.mkdir(parents=True, exist_ok=True)
    kept = where / f"{outcome.round.kind}-{outcome.round.seed}"
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(stores, kept, ignore=shutil.ignore_patterns("*.image", "*.left"))
    (kept / "round.txt").write_text(
        "\n".join([outcome.line, *outcome.notes, *outcome.verdict.words])
    )


if __name__ == "__main__":
    sys.exit(main())
