"""`slipstream serve`: the server's own command line, strict about what it does not know.

nats-server shows its help and ends with status 0 for a flag that it does not have, and
`slipstream-server` does the same. A service that was started with a mistyped flag must not look as
if it had ended well: here that is a misuse, with the flag that was probably meant.
"""

from collections.abc import Sequence

from slipstream.cli.global_options import UsageError, did_you_mean
from slipstream.server import command
from slipstream.server.flags import FLAGS, FlagError, parse


def serve(words: Sequence[str]) -> int:
    """Run a server; the exit status. Raises `UsageError` for flags that cannot be read."""
    try:
        parse(words)
    except FlagError as error:
        raise UsageError(
            f"serve: {error}{_meant(str(error))} (`slipstream serve --help` lists the flags)"
        ) from error
    return command.serve(words)


def _meant(error: str) -> str:
    unknown = error.partition("not defined: -")[2]
    if not unknown:
        return ""
    from difflib import get_close_matches

    # `--jetsream` and `-jetsream` are the same flag; short ones are too alike to guess.
    long = [name for name in FLAGS if len(name) > 2]
    return did_you_mean([f"--{name}" for name in get_close_matches(unknown.lower(), long, n=3)])
