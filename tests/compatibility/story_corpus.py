"""Short stories that long random walks of stream calls were cut down to: what one call leaves to
the next.

Continues `stream_corpus`, which takes each option by itself. Each function is run on servers of its
own, in order.
"""

from collections.abc import Iterator

from tests.compatibility.corpus import SECOND, Entry, api, consumer, create, pub, update
from tests.compatibility.stream_corpus import info


def reading() -> Iterator[Entry]:
    """What is wrong with a request for a message is said before the stream is looked for."""
    for body in ({"seq": 0}, {"batch": 1}, {"seq": 1, "last_by_subj": "a"}, {"seq": 1}):
        yield api("STREAM.MSG.GET.NONE", body)
    yield create("R", subjects=["r.>"], allow_direct=True)
    yield pub("r.a")
    for body in (
        {"multi_last": ["r.a"]}, {"multi_last": ["r.a"], "seq": 1},
        {"multi_last": ["r.>"], "start_time": "2100-01-01T00:00:00Z"},
        {"seq": 1, "batch": -1}, {"seq": 1, "max_bytes": -1}, {"seq": 1, "max_bytes": 1},
    ):  # fmt: skip
        yield api("STREAM.MSG.GET.R", body)
    yield ("pull", "DIRECT.GET.R", {"seq": 1, "batch": 2, "max_bytes": -1}, None)


def changing() -> Iterator[Entry]:
    """Updates of streams that have messages."""
    yield create("FULL", subjects=["full.*"])
    for token in "abab":
        yield pub(f"full.{token}")
    for options in (
        {"max_msgs": 3, "discard": "new"}, {"max_bytes": 40, "discard": "new"},
        {"max_msgs": 3, "discard": "new", "max_msgs_per_subject": 2},
    ):  # fmt: skip
        yield update("FULL", subjects=["full.*"], **options)
        for token in "ac":
            yield pub(f"full.{token}")
        yield info("FULL")
    yield update("FULL", subjects=["full.*"], max_msgs=3)
    yield info("FULL")
    yield create("UNHEARD", subjects=["unheard"])
    yield pub("unheard")
    yield update("UNHEARD", subjects=["unheard"], retention="interest")
    yield create("SHUT", subjects=["shut"], deny_purge=True)
    yield update("SHUT", subjects=["shut"], sealed=True)
    yield update("SHUT", subjects=["shut"], sealed=True, deny_purge=True, allow_rollup_hdrs=True)


def filling() -> Iterator[Entry]:
    """What nobody is interested in is not too large either: it is not stored."""
    yield create("I", subjects=["i.>"], retention="interest", max_bytes=50, discard="new")
    yield pub("i.a", b"x" * 60)
    yield consumer("I", "c", ack_policy="explicit", filter_subject="i.b")
    for token in "ab":
        yield pub(f"i.{token}", b"x" * 60)
    yield info("I")


def consuming() -> Iterator[Entry]:
    """Which of two errors in a consumer's configuration is told."""
    yield create("WQ", subjects=["wq.>"], retention="workqueue")
    yield consumer("WQ", "c", ack_policy="explicit")
    yield consumer("WQ", "d", ack_policy="explicit", deliver_policy="last")
    yield consumer("WQ", "d", ack_policy="explicit", deliver_policy="new", filter_subject="wq.a")
    yield consumer("WQ", "c", ack_policy="explicit", filter_subject="wq.b")
    yield consumer("WQ", "d", ack_policy="explicit", filter_subject="wq.a")
    yield consumer("WQ", "d", ack_policy="explicit", filter_subject="wq.>", max_waiting=2)
    yield create("K", subjects=["k"])
    yield consumer("K", "c", deliver_policy="last", mem_storage=True, deliver_subject="d")
    yield consumer("K", "c", deliver_policy="last", ack_policy="explicit", deliver_subject="d")
    yield consumer("K", "c", mem_storage=True)
    yield consumer("K", "c", deliver_policy="last", mem_storage=True)
    yield consumer("K", "f", deliver_subject="d", flow_control=True, opt_start_seq=1)
    yield consumer("K", "b", backoff=[2 * SECOND, 3 * SECOND], ack_wait=SECOND)
    yield create("KL", subjects=["kl"], consumer_limits={"max_ack_pending": 3})
    pushed = {"deliver_subject": "d", "flow_control": True}
    yield consumer("KL", "c", ack_policy="explicit", max_ack_pending=5, **pushed)
    yield consumer("KL", "c", ack_policy="explicit", **pushed)


PARTS = (reading, changing, filling, consuming)
