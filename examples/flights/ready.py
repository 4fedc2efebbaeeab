"""Says in one line what is missing, before anything long begins; needs nothing installed."""

import sys

PYTHON_MIN = (3, 11)


def check() -> None:
    """Exit with one line if Python is too old, or Java missing."""
    if sys.version_info < PYTHON_MIN:
        sys.exit(f"the demo needs Python 3.11 or newer, and {sys.executable} is older")
    from slipstream.errors import ConfigError
    from slipstream.spark.session import check_java

    try:
        check_java()
    except ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    check()
