"""The subject on which a message of a consumer is acknowledged
(docs/protocol/consumers.md#acknowledgement-subjects).

It comes with the message as its reply subject, and says which message this is:

    $JS.ACK.<stream>.<consumer>.<numbers>
    $JS.ACK.<domain>.<account hash>.<stream>.<consumer>.<numbers>[.<more, which says nothing>]

where the numbers are ``<delivered>.<stream seq>.<consumer seq>.<time>.<pending>``.
"""

import slipstream.wire.ascii as char

ACK_PREFIX = b"$JS.ACK."
NUMBERS = 5
SEQUENCES = 3  # numbers up to the consumer's sequence; time and pending come after it

_int = int  # the names `int` and `bool` in a compiled module's annotations are C types
_bool = bool

# Known to compiled code as C values.
_PREFIX = ACK_PREFIX
_PREFIX_SIZE: _int = len(ACK_PREFIX)
_NUMBER_MAX: _int = 2**63 - 1
_DIGITS_MAX: _int = 19  # of a number that 64 bits hold


def ack_head(stream: str, consumer: str) -> bytes:
    """What the subjects of a consumer of this server have before their numbers."""
    return ACK_PREFIX + f"{stream}.{consumer}.".encode()


def is_ack_subject(subject: bytes) -> _bool:
    """Whether a message with this reply subject was delivered by a consumer."""
    view = subject
    prefix = _PREFIX
    n = min(len(subject), _PREFIX_SIZE)
    i = 0
    while i < n and view[i] == prefix[i]:
        i += 1
    return i == _PREFIX_SIZE


class AckSubject:
    """What an acknowledgement subject says. One object can read one subject after another.

    `num_delivered` counts the message's deliveries (1 for the first), `stream_sequence` and
    `consumer_sequence` are its numbers, `timestamp_ns` is when it was stored, `num_pending` counts
    the messages that are still to come. `has_domain` is true of the second form.
    """

    def __init__(self) -> None:
        self.has_domain = False
        self.num_delivered = 0
        self.stream_sequence = 0
        self.consumer_sequence = 0
        self.timestamp_ns = 0
        self.num_pending = 0

    def read(self, subject: bytes) -> _bool:
        """Read a subject of either form; False if it is neither."""
        if not is_ack_subject(subject):
            return False
        view = subject
        dots = 0
        fourth = 0
        sixth = 0
        for i in range(len(subject)):
            if view[i] == char.DOT:
                dots += 1
                if dots == 4:
                    fourth = i + 1
                elif dots == 6:
                    sixth = i + 1
        self.has_domain = dots >= 10
        if dots != 8 and not self.has_domain:
            return False
        return self.read_numbers(subject, sixth if self.has_domain else fourth, NUMBERS) >= 0

    def read_numbers(self, subject: bytes, start: _int, count: _int) -> _int:
        """Read the first `count` of the numbers, which begin at `start`.

        Returns where the last of them ends, or -1 if one is missing or has more than 63 bits.
        """
        view = subject
        n = len(subject)
        i = start
        for field in range(count):
            first = i
            value = 0
            while i < n and char.ZERO <= view[i] <= char.NINE:
                value = value * 10 + (view[i] - char.ZERO)
                i += 1
            if i == first or i - first > _DIGITS_MAX or value > _NUMBER_MAX:
                return -1
            if i < n and view[i] != char.DOT:
                return -1
            if field == 0:
                self.num_delivered = value
            elif field == 1:
                self.stream_sequence = value
            elif field == 2:
                self.consumer_sequence = value
            elif field == 3:
                self.timestamp_ns = value
            else:
                self.num_pending = value
            i += 1
        return i - 1
