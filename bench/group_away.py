"""A follower that was away, and comes back while publishing goes on:
``python -m bench.group_away [--messages N] [--group NAME]``.

One of three servers is killed, so many messages are published, and it starts again beside a load
that never ends. Prints how long it takes to have all, and the rate of the load before it was
killed, without it, and while it catches up.
"""

import argparse
import subprocess
import sys
import time

import slipstream
import slipstream.sync
from bench.group import SIZE, Group, groups
from bench.loads import run_loadgen
from bench.programs import LOADGEN
from bench.servers import check_installed

STREAM, SUBJECT = "AWAY", "away.a"
BEFORE = 4_000_000  # messages, until the disk is as busy as it will be
EACH = 1_000_000  # messages of one run of the load generator
WITHIN_SECONDS = 600.0
LOOK_SECONDS = 0.25
LAG_MAX = 1000  # what a load with so many on their way leaves a follower behind, at any moment


def publish(address: str, messages: int) -> float:
    """Messages a second."""
    begin = time.monotonic()
    for left in range(messages, 0, -EACH):
        n = min(left, EACH)
        run_loadgen(address, "jspub", n=n, size=SIZE, subject=SUBJECT, window=1000)
    return messages / (time.monotonic() - begin)


def back_after(group: Group, away: str, address: str) -> tuple[float, float]:
    """Seconds until the server `away` has all, once it is started; messages a second meanwhile."""
    load = [str(LOADGEN), address, "jspub", "n=1000000000", f"size={SIZE}"]
    load += [f"subject={SUBJECT}", "window=1000"]
    with (
        slipstream.sync.connect(f"nats://{address}") as nc,
        subprocess.Popen(load, stdout=subprocess.DEVNULL) as process,
    ):
        try:
            stream = nc.jetstream().stream(STREAM)
            first = stream.info().state.last_seq
            group.start(away)
            begin = time.monotonic()
            while True:
                time.sleep(LOOK_SECONDS)
                info = stream.info()
                seconds = time.monotonic() - begin
                assert info.cluster is not None
                [one] = [peer for peer in info.cluster.replicas or () if peer.name == away]
                if one.current and not one.offline and (one.lag or 0) <= LAG_MAX:
                    return seconds, (info.state.last_seq - first) / seconds
                if seconds > WITHIN_SECONDS:
                    raise RuntimeError(f"{away} has not caught up in {seconds:.0f} s: {one}")
        finally:
            process.kill()


def measure(group: Group, messages: int) -> None:
    """Print what a group does."""
    address = group.make_stream(STREAM, "away.>")
    away = next(name for name in ("n1", "n2", "n3") if name != group.name_of(address))
    before = publish(address, BEFORE)
    group.kill(away)
    without = publish(address, messages)
    seconds, during = back_after(group, away, address)
    print(
        f"{group.name}: back after {seconds:.1f} s; {before:,.0f}/s before, {without:,.0f}/s "
        f"without it, {during:,.0f}/s while it caught up ({during / before:.0%})",
        flush=True,
    )


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m bench.group_away", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--group", default="", help="only groups with this in their name")
    options = parser.parse_args()
    check_installed()
    for group in groups():
        if options.group in group.name:
            with group:
                try:
                    measure(group, options.messages)
                except (RuntimeError, slipstream.Error) as error:
                    print(f"{group.name}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
