"""How long a negative acknowledgement asks to wait: ``-NAK 10s`` or ``-NAK {"delay": 1000}``."""

import msgspec

from slipstream.engine.protocol.json_body import Int64, read_lenient
from slipstream.model.durations import LONGEST_NS, parse_duration


class NakOptions(msgspec.Struct, forbid_unknown_fields=True):
    """What a negative acknowledgement may say in JSON, read by `read_lenient`."""

    delay: Int64 = 0


def nak_delay(text: bytes) -> int:
    """The delay of a negative acknowledgement in ns; 0 for none or what cannot be read."""
    if text.startswith(b"{"):
        try:
            return min(read_lenient(text, NakOptions).delay, LONGEST_NS)
        except msgspec.MsgspecError:
            return 0
    return min(parse_duration(text.decode("utf-8", "replace")) or 0, LONGEST_NS)
