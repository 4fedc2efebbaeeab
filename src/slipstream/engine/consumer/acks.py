"""Acknowledgements: what clients publish to the reply subject of a message
(docs/protocol/consumers.md#acknowledgements).

The service is registered for all subjects with the consumer's head; `model.ack_subject` reads the
numbers after it.
"""

from typing import TYPE_CHECKING

import slipstream.wire.ascii as char
from slipstream.engine.consumer.nak import nak_delay
from slipstream.engine.consumer.redelivery import in_progress, nak, term
from slipstream.engine.session.message import Inbound
from slipstream.engine.session.routing import Service
from slipstream.model.ack_subject import SEQUENCES, AckSubject

if TYPE_CHECKING:
    from slipstream.engine.consumer.consumer import Consumer

_int = int  # the name `int` in a compiled module's annotations is a C type


class AckService(Service):
    """Takes the acknowledgements of one consumer."""

    def __init__(self, consumer: "Consumer") -> None:
        self.consumer = consumer
        self._head_size = len(consumer.ack_head)
        self._ack = AckSubject()
        if consumer.acks:
            consumer.account.add_service(consumer.ack_head + b">", self)

    def stop(self) -> None:
        """Take no more."""
        if self.consumer.acks:
            self.consumer.account.remove_service(self.consumer.ack_head + b">", self)

    def handle(self, message: Inbound) -> _int:
        ack = self._ack
        end = ack.read_numbers(message.subject, self._head_size, SEQUENCES)
        if end < 0 or end == len(message.subject):
            return 1
        seq = ack.stream_sequence
        consumer_seq = ack.consumer_sequence
        if seq == 0:
            return 1
        size = message.end - message.body_start
        view = message.data
        i = message.body_start
        # Most of all: nothing, or +ACK.
        if size == 0 or (
            size == 4
            and view[i] == char.PLUS
            and view[i + 1] == ord("A")
            and view[i + 2] == ord("C")
            and view[i + 3] == ord("K")
        ):
            if seq < self.consumer.next_seq:
                self.consumer.acked(seq, consumer_seq)
                if message.reply:
                    self._answer_when_saved(message.reply)
            return 1
        self._other(seq, consumer_seq, message.body(), message.reply)
        return 1

    def _other(self, seq: _int, consumer_seq: _int, body: bytes, reply: bytes) -> None:
        """Everything but a plain acknowledgement; what is unknown is answered all the same."""
        consumer = self.consumer
        if body.startswith(b"+NXT"):
            consumer.acked(seq, consumer_seq)
            if reply:
                consumer.delivery.request(reply, body[4:].strip())
        elif body == b"+OK" or body.startswith(b"+TERM"):
            if seq >= consumer.next_seq:
                return  # it has not been delivered: no answer
            if body == b"+OK":
                consumer.acked(seq, consumer_seq)
            else:
                term(consumer, seq, consumer_seq, body[5:].strip().decode("utf-8", "replace"))
            if reply and not (
                consumer.letters is not None
                and consumer.letters.when_settled(seq, lambda: self._answer(reply))
            ):
                self._answer_when_saved(reply)
        else:
            if body.startswith(b"-NAK"):
                nak(consumer, seq, nak_delay(body[4:].strip()))
            elif body == b"+WPI":
                in_progress(consumer, seq)
            self._answer(reply)

    def _answer(self, reply: bytes) -> None:
        if reply:
            self.consumer.account.send(reply, b"", b"", b"")

    def _answer_when_saved(self, reply: bytes) -> None:
        self.consumer.life.when_saved(lambda: self._answer(reply))
