"""`python -m tests.group_clients`: other people's clients while leaders change, many times."""

import argparse
import asyncio
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.group_clients.changes import CHANGES, PLANNED
from tests.group_clients.pauses import Change, Spread, pause, tries_most
from tests.group_clients.programs import PROGRAMS, MissingError
from tests.group_clients.record import Record
from tests.group_clients.run import Outcome, alternating, run


def main() -> int:
    """Make the changes that the command line asks for; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="group-clients", description=__doc__)
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--kind", choices=sorted(CHANGES), help="always this one")
    parser.add_argument("--clients", nargs="+", choices=sorted(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--keep", type=Path, help="for logs and stores")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # of clients whose server was killed
    commands = _commands(options.clients)
    if not commands:
        return 2
    kinds = [options.kind] * options.changes if options.kind else alternating(options.changes)
    began, load = time.monotonic(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="group-clients-") as name:
        directory = options.keep or Path(name)
        directory.mkdir(parents=True, exist_ok=True)
        outcome = asyncio.run(run(commands, kinds, directory, lambda text: print(text, flush=True)))
    print(
        f"{len(outcome.changes)} changes in {time.monotonic() - began:.0f} s; load of the machine "
        f"{load:.1f} before and {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores"
    )
    return _say(outcome)


def _commands(names: Sequence[str]) -> dict[str, list[str]]:
    """Of those that can be had; says which cannot."""
    commands = {}
    for name in names:
        try:
            commands[name] = PROGRAMS[name].made()
        except MissingError as error:
            print(f"without {name}: {error}", flush=True)
    return commands


def _say(outcome: Outcome) -> int:
    is_broken = False
    for name, record in outcome.records.items():
        verdict = outcome.verdicts[name]
        is_broken |= bool(verdict.counts)
        found = ", ".join(f"{count} {what}" for what, count in verdict.counts.items())
        print(
            f"{PROGRAMS[name].library}: {len(record.acknowledged)} acknowledged, "
            f"{len(record.settled)} settled, {found or 'nothing broken'}; "
            f"{len(record.refused)} errors of publishing, {len(record.unsettled)} of acknowledging"
        )
        for text in verdict.words:
            print(f"    {text}")
        for name_of_kinds, kinds in (("killed", ("kill",)), ("planned", PLANNED)):
            changes = [one for one in outcome.changes if one.kind in kinds]
            _say_pauses(record, name_of_kinds, changes)
    return 1 if is_broken else 0


def _say_pauses(record: Record, kinds: str, changes: Sequence[Change]) -> None:
    if not changes:
        return
    acknowledged = [one.at for one in record.acknowledged]
    delivered = [one.at for one in record.delivered]
    tries = Counter(tries_most(record, one) for one in changes)
    for what, times in (("acknowledged", acknowledged), ("delivered", delivered)):
        found = Spread.of([pause(times, one) * 1000 for one in changes])
        print(
            f"    {len(changes)} {kinds}: nothing {what} for {found.p50:.0f} ms (p50), "
            f"{found.p99:.0f} ms (p99), {found.most:.0f} ms (most)"
        )
    print(f"    a message was sent {_counted(tries)}")


def _counted(tries: "Counter[int]") -> str:
    return ", ".join(f"{most} times at most in {count}" for most, count in sorted(tries.items()))


if __name__ == "__main__":
    sys.exit(main())
