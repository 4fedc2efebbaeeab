"""The whole benchmark: `python -m bench`, or parts of it: `python -m bench loads scale curves`.

Writes bench/RESULTS.md and the plots in docs/plots. Each part has more options when run by itself:
`python -m bench.compare --help`, `bench.scale`, `bench.curves`.
"""

import argparse

from bench import compare, curves, scale

PARTS = {"loads": compare, "scale": scale, "curves": curves}


def main() -> None:
    """Run the parts that the command line names, all by default."""
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    names = parser.parse_args().parts or list(PARTS)
    for name in names:
        if name not in PARTS:
            parser.error(f"there is no part {name!r}, only {', '.join(PARTS)}")
    for name in names:
        part_parser = argparse.ArgumentParser()
        PARTS[name].add_options(part_parser)
        PARTS[name].run(part_parser.parse_args([]))


if __name__ == "__main__":
    main()
