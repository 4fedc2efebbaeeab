"""Cost against size, for both servers: `python -m bench.curves [--only TEXT] [--small]`.

Each curve grows one thing (streams, consumers, messages, ...) on a running server and measures at
each size what an operation costs: processor time of the server, which other work on the machine
disturbs less than the clock. Where the design says that a cost does not depend on a size, the curve
has to be flat. The figures go to bench/results.json, the plots to docs/plots.
"""

import argparse
import resource
import time
from typing import Any

from bench import plots, report
from bench.curve_loads import CURVES, Curve
from bench.programs import build_programs
from bench.servers import NATS_SERVER, SLIPSTREAM, Contender, Running, check_installed

Points = dict[str, list[tuple[float, float]]]


def trace(curve: Curve, contender: Contender, sizes: tuple[int, ...]) -> Points:
    """The lines of one curve on one server: by label, (size, cost) for each size."""
    points: Points = {}
    with Running(contender) as server:
        cost_at = curve.begin(server)
        for size in sizes:
            costs = cost_at(size)
            for label, cost in costs.items():
                points.setdefault(label, []).append((size, cost))
            texts = ", ".join(f"{label} {report.figure(cost)}" for label, cost in costs.items())
            print(f"    {contender.name} {size:,}: {texts}", flush=True)
    return points


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this part."""
    parser.add_argument("--only", default="", help="only curves whose name contains this")
    parser.add_argument("--list", action="store_true", help="print the names of the curves")
    parser.add_argument("--small", action="store_true", help="leave out each curve's largest size")
    parser.add_argument("--ours", action="store_true", help="Slipstream alone, saving nothing")
    parser.add_argument("--no-save", action="store_true", help="print, and leave the files alone")


def run(options: argparse.Namespace) -> None:
    """Measure the curves, save them and draw the plots."""
    curves = [curve for curve in CURVES if options.only in curve.name]
    if options.list:
        print("\n".join(f"{curve.name}: {curve.title}" for curve in curves))
        return
    check_installed()
    build_programs()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    begin = time.monotonic()
    for curve in curves:
        sizes = curve.sizes[:-1] if options.small else curve.sizes
        print(f"==> {curve.name}: {curve.title} ({curve.y_label})", flush=True)
        lines: dict[str, Any] = {}
        for contender in (SLIPSTREAM,) if options.ours else (SLIPSTREAM, NATS_SERVER):
            lines[contender.name] = trace(curve, contender, sizes)
        if not (options.no_save or options.ours):
            report.save("curves", [{"name": curve.name, "lines": lines}])
            plots.draw(CURVES, report.load()["curves"]["rows"])
    print(f"==> {time.monotonic() - begin:.0f} s", flush=True)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
