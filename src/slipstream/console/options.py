"""What `slipstream console` can be told."""

import msgspec

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8380
ACCESS = "access"  # what the address that the command prints has its key under
LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})  # of this machine


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the console behaves; durations in seconds."""

    host: str = DEFAULT_HOST
    port: int = DEFAULT_PORT
    base: str = ""  # the path before every page, such as /console
    read_only: bool = False  # refuse whatever changes something
    hosts: tuple[str, ...] = ()  # names that browsers may ask for it by, beside this machine's
    mask_headers: tuple[str, ...] = ()  # names of headers, * stands for any letters
    mask_fields: tuple[str, ...] = ()  # names or dotted paths of JSON fields, * for one step
    sample_seconds: float = 5.0  # between two looks at rates and lag
    fresh_seconds: float = 0.5  # a page may show a look that is not older
