"""The reasons why a consumer delivers or not follow from what is known about it."""

import re
from pathlib import Path
from typing import Any

import pytest

from slipstream.model.durations import SECOND
from slipstream.model.times import text_ns
from slipstream.model.why import (
    DeadLetterFacts,
    Facts,
    KnownMessage,
    Reason,
    ReasonCode,
    explain,
    reasons,
)

NOW = text_ns("2026-01-31T12:00:00Z")
PUSH = {"deliver_subject": "to.me", "is_heard": True}
PAGE = Path(__file__).parents[2] / "docs" / "cli.md"


def facts(**known: Any) -> Facts:
    """A pull consumer with one request, three messages to deliver and room for them."""
    usual = {"messages": 5, "last_seq": 5, "num_pending": 3, "num_waiting": 1, "delivered_seq": 2}
    return Facts(stream="S", consumer="c", now=NOW, **(usual | known))


def reason(code: str, **known: Any) -> Reason:
    found = {one.code: one for one in reasons(facts(**known))}
    assert code in found, found
    return found[code]


def blocking(**known: Any) -> list[str]:
    return [one.code for one in reasons(facts(**known)) if one.blocks]


def test_with_work_and_room_and_a_request_it_delivers() -> None:
    explained = explain(facts())
    assert explained.delivers
    assert [one.text for one in explained.reasons] == [
        "3 messages wait to be delivered.",
        "1 pull request waits.",
    ]


@pytest.mark.parametrize(
    ("code", "known"),
    [
        ("paused", {"paused_until": NOW + 90 * SECOND}),
        ("nothing_pending", {"num_pending": 0}),
        ("max_ack_pending", {"max_ack_pending": 2, "num_ack_pending": 2}),
        ("storage_failed", {"failure": "no space left", "is_syncing": True}),
        ("syncing", {"is_syncing": True}),
        ("replay", {"replay_at": NOW + SECOND}),
        ("nobody_asks", {"num_waiting": 0}),
        ("slow_client", {"held_up_by": "slow_client"}),
        ("priority_group", {"held_up_by": "priority_group"}),
        ("no_interest", {"deliver_subject": "to.me"}),
        ("flow_control", {**PUSH, "held_up_by": "flow_control"}),
        ("rate_limit", {**PUSH, "held_up_by": "rate_limit"}),
        ("slow_client", {**PUSH, "held_up_by": "slow_client"}),
    ],
)  # fmt: skip
def test_what_is_missing_blocks(code: str, known: dict[str, Any]) -> None:
    assert blocking(**known) == [code]


def test_on_a_group_what_is_pending_waits_for_a_majority() -> None:
    waiting = reason("syncing", is_syncing=True, servers=3)
    assert waiting.text == (
        "What is pending is not on the disks of a majority of the 3 servers yet; it is delivered "
        "as soon as it is."
    )
    one = reason("syncing", is_syncing=True, servers=3, silent=["n2"], silent_for=SECOND)
    assert one.text.endswith("as soon as it is. n2 has not answered for 1.00s.")
    gone = {"silent": ["n2", "n3"], "silent_for": 12 * SECOND}
    lost = reason("syncing", is_syncing=True, servers=3, **gone)
    assert lost.text.endswith("There is no majority: n2 and n3 have not answered for 12.00s.")


def test_what_is_stored_and_not_on_disk_yet_is_said() -> None:
    waiting = reason("syncing", num_pending=0, arriving=2)
    assert waiting.text == (
        "2 messages of the stream are not on disk yet; what of that is for it is delivered then."
    )
    assert "syncing" not in blocking(num_pending=1, arriving=2)


def test_what_is_due_again_goes_out_although_there_is_no_room_for_more() -> None:
    full = {"max_ack_pending": 2, "num_ack_pending": 2, "num_pending": 0}
    assert blocking(**full) == ["nothing_pending", "max_ack_pending"]
    assert blocking(**full, due=1) == []


def test_what_is_full_is_named_with_its_oldest_messages() -> None:
    out = [KnownMessage(n, f"s.{n}", NOW - 9 * SECOND, NOW - 5 * SECOND) for n in range(1, 7)]
    found = reason(
        "max_ack_pending",
        max_ack_pending=6,
        num_ack_pending=6,
        delivered_at=NOW - 5 * SECOND,
        ack_wait=30 * SECOND,
        outstanding=out,
    )
    assert found.text.startswith(
        "All 6 messages that may be out for acknowledgement are out (max_ack_pending) since "
        "2026-01-31 11:59:55 UTC, 5.00s ago. Nothing new is delivered until one is acknowledged; "
        "after ack wait (30.00s) they come again. The oldest: 1 (s.1, stored 2026-01-31 11:59:51 "
        "UTC, delivered 5.00s ago), 2 "
    )
    assert found.text.endswith("ago) and 1 more.")
    assert found.advice == "See that its clients acknowledge, or raise max_ack_pending."


def test_where_it_begins_is_said_when_that_is_still_to_come() -> None:
    late = {"num_pending": 0, "delivered_seq": 0}
    assert blocking(**late, next_seq=9) == ["nothing_pending", "starts_later"]
    assert blocking(**late, next_seq=6) == ["nothing_pending"]
    assert blocking(**late, next_seq=6, deliver_new=True) == ["nothing_pending", "deliver_new"]


def test_when_it_comes_again_is_exact_or_an_upper_bound() -> None:
    out = {"num_pending": 0, "num_ack_pending": 1, "redelivery_at": NOW + 60 * SECOND}
    at = "at 2026-01-31 12:01:00 UTC (in 1m0s)"
    assert reason("redelivery", **out, is_redelivery_exact=True).text == (
        f"Unless it is acknowledged, the first comes again when its ack wait is over, {at}."
    )
    assert reason("redelivery", **out, num_redelivered=1, has_backoff=True).text == (
        "1 message was delivered more than once. Unless it is acknowledged, what is out comes "
        f"again when its backoff is over, {at} at the latest."
    )


def test_what_may_be_delivered_once_alone_does_not_come_again() -> None:
    once = {"max_deliver": 1, "ack_wait": 30 * SECOND, "num_pending": 0}
    out = {**once, "redelivery_at": NOW + SECOND, "num_ack_pending": 1}
    found = reason("redelivery", **out, is_redelivery_exact=True).text
    assert "the first is given up (max_deliver) when its ack wait is over" in found
    found = reason("max_ack_pending", **out, max_ack_pending=1).text
    assert "after ack wait (30.00s) it is given up" in found
    found = reason("max_ack_pending", **once, num_ack_pending=2, max_ack_pending=2).text
    assert "after ack wait (30.00s) they are given up" in found


def test_what_used_up_its_deliveries_is_named() -> None:
    spent = {"max_deliver": 3, "exhausted": [KnownMessage(1, "s.1", NOW)]}
    one = reason("max_deliver", **spent, num_exhausted=1, is_exhausted_exact=True)
    assert not one.blocks
    assert "1 message has used up its 3 deliveries (max_deliver) and is not delivered" in one.text
    assert "they are among 1 (s.1" in reason("max_deliver", **spent, num_exhausted=2).text
    unknown = reason("max_deliver", max_deliver=3, num_exhausted=2, is_exhausted_exact=True).text
    assert unknown.endswith("and are not delivered again.")


def test_dead_letters_that_no_stream_takes_fill_the_consumer() -> None:
    waiting = DeadLetterFacts(subject="dead.s", waiting=2, sequences=[3, 4], problem="no stream")
    found = reason("dead_letters_wait", dead_letters=waiting, max_ack_pending=2)
    assert found.blocks
    assert "2 messages wait to be stored as dead letters (3, 4): no stream." in found.text
    assert found.advice.startswith("Make a stream with subject dead.s")
    assert not reason("dead_letters_wait", dead_letters=waiting, max_ack_pending=-1).blocks


def test_a_pinned_client_that_does_not_ask_is_named() -> None:
    held = {"held_up_by": "priority_group"}
    assert "from a threshold on" in reason("priority_group", **held).text
    pinned = reason("priority_group", **held, pinned_at=NOW - SECOND).text
    assert pinned.startswith("The pinned client (since 2026-01-31 11:59:59 UTC) does not ask")


def test_the_page_lists_every_code() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \|", PAGE.read_text(), re.MULTILINE)
    assert set(ReasonCode) <= {code for row in rows for code in re.findall(r"\w+", row)}
