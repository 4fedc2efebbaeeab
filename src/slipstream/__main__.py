"""`python -m slipstream`: the command line, where the `slipstream` program is not on PATH."""

import sys

from slipstream.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
