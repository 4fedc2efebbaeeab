"""What a client was told, compared with what its stream has. Knows nothing of servers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.broken_promises import Verdict
from tests.group_clients.record import Record


class Stored(NamedTuple):
    """A message of the stream."""

    sequence: int
    message_id: str
    body: bytes


def judge(record: Record, stored: Sequence[Stored], left: int = 0) -> Verdict:
    """`stored` is the stream by sequence; `left` is how many of it the consumer has not settled at
    the end, as the server says. The promises:

    lost         what was acknowledged is there, at its sequence
    twice        each id is there once
    order        messages are in the order in which they were published
    foreign      nothing is there that the client has not published
    undelivered  the consumer was given all that is there
    unsettled    all that is there is acknowledged, also where the client was not told so
    again        what a double acknowledgement has settled is not sent to who asks after that
    """
    verdict = Verdict()
    there = {one.sequence: one for one in stored}
    verdict.add("lost", [
        f"{one.number} was acknowledged as {one.sequence}"
        for one in record.acknowledged
        if one.sequence not in there or there[one.sequence].message_id != str(one.number)
    ])  # fmt: skip
    ids = Counter(one.message_id for one in stored)
    doubles = [f"{one} is there {count} times" for one, count in ids.items() if count > 1]
    verdict.add("twice", doubles)
    verdict.add("order", list(_out_of_order(stored)))
    published = {str(number) for number in range(record.published or 0)}
    verdict.add("foreign", [f"{one}" for one in stored if one.message_id not in published])
    delivered = {one.sequence for one in record.delivered}
    verdict.add("undelivered", [f"{one}" for one in stored if one.sequence not in delivered])
    verdict.add("unsettled", ["the consumer has not all"] * left)
    verdict.add("again", list(_delivered_again(record)))
    return verdict


def _out_of_order(stored: Sequence[Stored]) -> Iterator[str]:
    last = -1
    for one in stored:
        if int(one.message_id) < last:
            yield f"{one.message_id} at {one.sequence} follows {last}"
        last = max(last, int(one.message_id))


def _delivered_again(record: Record) -> Iterator[str]:
    for one in record.delivered:
        settled = record.settled.get(one.number, one.at)
        if settled < one.asked:
            late = one.at - settled
            yield f"{one.number}, delivery {one.count}, {late:.3f} s after it was settled"
