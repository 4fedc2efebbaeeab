"""Short scripts of consumer calls, in the words of `consumer_scripts`: what long random walks that
ended in a difference were cut down to."""

from typing import Any

from tests.compatibility.consumer_scripts import HOUR, Step

EXPLICIT = {"ack_policy": "explicit", "ack_wait": HOUR}


def _begin(retention: str, **config: Any) -> list[Step]:
    """A stream with a consumer, and three messages."""
    stream = {"name": "S", "subjects": ["s.>"], "retention": retention}
    publishes: list[Step] = [("publish", f"s.{token}") for token in "abc"]
    return [("stream", stream), ("consumer", "c", EXPLICIT | config), *publishes]


def _late(retention: str, body: bytes) -> list[Step]:
    """The last word about a message that was given up after its one delivery."""
    return [
        *_begin(retention, max_deliver=1),
        ("pull", "c", {"batch": 3}),
        ("ack", "c", 0.99, b"-NAK"),
        ("pull", "c", {"batch": 1, "no_wait": True}),
        ("ack", "c", 0.99, body),
        ("ack", "c", 0.99, b"+ACK"),
    ]


STORIES: dict[str, list[Step]] = {
    f"{retention}: {body.decode()} of what was given up": _late(retention, body)
    for retention in ("workqueue", "interest", "limits")
    for body in (b"+ACK", b"+TERM", b"+OK", b"-NAK", b"+NXT")
} | {
    "termination of the last of all": [
        *_begin("limits", ack_policy="all"),
        ("pull", "c", {"batch": 2}),
        ("ack", "c", 0.99, b"+TERM why"),
        ("pull", "c", {"batch": 1}),
    ],
    "bounds on requests that come after the same request": [
        *_begin("limits"),
        ("pull", "c", {"batch": 2, "no_wait": True}),
        ("update", "c", EXPLICIT | {"max_batch": 1}),
        ("pull", "c", {"batch": 2, "no_wait": True}),
    ],
    "requests whose time was over before they came": [
        *_begin("limits"),
        ("pull", "c", {"batch": 2, "expires": -1}),
        ("pull", "c", {"batch": 2, "expires": -1, "no_wait": True, "max_bytes": 100}),
        ("pull", "c", {"expires": -1}),
    ],
    "members of a group that is not the consumer's": [
        *_begin("limits", deliver_subject="to"),
        ("listen", "to", "g"),
        ("publish", "s.a"),
        ("listen", "to", ""),
        ("publish", "s.a"),
        ("leave", "to", ""),
        ("publish", "s.a"),
    ],
    "somebody who is not in the consumer's group": [
        *_begin("limits", deliver_subject="to", deliver_group="g"),
        ("listen", "to", ""),
        ("publish", "s.a"),
        ("consumer", "c", EXPLICIT | {"deliver_subject": "elsewhere"}),
        ("listen", "to", "g"),
        ("publish", "s.a"),
    ],
}
