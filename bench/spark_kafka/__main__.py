"""Spark on a stream and on a Kafka topic, in one run: `python -m bench.spark_kafka [--messages N]`.

A Slipstream server and a Kafka broker (KRaft, loopback) run on this machine and hold the same rows:
200 bytes and one of 16 subjects, or keys. Each round measures both, in random order, each in a
Spark session (`local[2]`) of its own, so that a first read is cold in every round; and so does a
source and a sink in Python that do nothing (`ready`), as the limit. A row of the table has the
medians and the interval of their ratio, as `bench.compare`.

    --messages 20000 --rounds 1 --no-save        whether it runs, in two minutes
    --only "batch"                               some of the lines
    --steady 180                                 20,000 messages a second for three minutes instead

Java and Maven are needed: the broker and the connector come from Maven Central (`fetch`).
"""

import argparse
import os
from contextlib import ExitStack
from random import Random

from bench import report
from bench.servers import SLIPSTREAM, Running
from bench.spark_kafka import fetch, steady
from bench.spark_kafka.broker import Broker
from bench.spark_kafka.lines import LINES, row_of
from bench.spark_kafka.session import fill, measure, run_steady

WIDTHS = (46, 11, 11, 8, 14, 20, 8, 11)


def main() -> None:
    """Measure, print and save what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="bench.spark_kafka",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trickle-seconds", type=float, default=20.0)
    parser.add_argument("--only", default="", help="lines whose name contains this")
    parser.add_argument("--seed", type=int, default=None, help="of the order of the two")
    parser.add_argument("--steady", type=float, default=0.0, help="seconds of a steady load")
    parser.add_argument("--without-kafka", action="store_true", help="a steady load on ours alone")
    parser.add_argument("--no-save", action="store_true", help="print, and leave RESULTS.md alone")
    options = parser.parse_args()
    connector = fetch.fetch()
    print(f"==> Kafka {fetch.KAFKA}, its connector for Spark {connector.version}", flush=True)
    with ExitStack() as stack:
        server = stack.enter_context(Running(SLIPSTREAM))
        addresses, pids = {"slipstream": server.address}, {"slipstream": server.pid}
        if not (options.steady and options.without_kafka):
            broker = stack.enter_context(Broker(connector.broker))
            addresses["kafka"], pids["kafka"] = broker.address, broker.pid
        if options.steady:
            runs = {
                name: run_steady(name, addresses[name], options.steady, pids[name])
                for name in addresses
            }
            steady.show(runs, options.steady, is_saved=not options.no_save)
        else:
            compare(addresses, options, connector.version)


def compare(addresses: dict[str, str], options: argparse.Namespace, connector: str) -> None:
    """The rounds, and the table of their medians."""
    chosen = [line for line in LINES if options.only in line.name]
    for name, address in addresses.items():
        fill(name, address, options.messages)
    addresses = {**addresses, "ready": str(options.messages)}
    found: dict[str, dict[str, list[float]]] = {name: {} for name in addresses}
    random = Random(options.seed)
    loads = []
    for number in range(options.rounds):
        for name in random.sample(list(addresses), len(addresses)):
            loads.append(os.getloadavg()[0])
            works = list(dict.fromkeys(line.work for line in chosen))
            figures = measure(
                name, addresses[name], works, options.messages, options.trickle_seconds
            )
            print(f"==> round {number + 1}, {name}, load {loads[-1]:.2f}: {figures}", flush=True)
            for key, figure in figures.items():
                found[name].setdefault(key, []).append(figure)
    rows = [row_of(line, found["slipstream"], found["kafka"], found["ready"]) for line in chosen]
    print(report.line(["", "Slipstream", "Kafka", "ratio", "95%", "goal", "", "limit"], WIDTHS))
    for row in rows:
        print(report.line(report.load_cells(row), WIDTHS))
    if not options.no_save:
        report.save(
            "spark_kafka",
            rows,
            rounds=options.rounds,
            messages=options.messages,
            load=[min(loads), max(loads)],
            kafka=f"Kafka {fetch.KAFKA}, its connector for Spark {connector}",
        )


if __name__ == "__main__":
    main()
