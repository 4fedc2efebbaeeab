"""Finding services: asks everybody who listens on ``$SRV`` (ADR-32)."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, TypeVar

import msgspec

from slipstream.client.errors import ClientError, NoRespondersError
from slipstream.client.options import Seconds
from slipstream.client.services.replies import ServiceInfo, ServicePing, ServiceStats
from slipstream.errors import ProtocolError

if TYPE_CHECKING:
    from slipstream.client.connection import Connection

Reply = TypeVar("Reply", bound=ServicePing)


class Discovery:
    """``async for info in nc.services.info("calculator"): ...``

    Each method asks all services, those of one name, or one instance by its id, and gives the
    answers that come before `stall` passes without another.
    """

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def ping(
        self, name: str = "", id: str = "", *, timeout: Seconds = 2.0, stall: Seconds = 0.3
    ) -> AsyncIterator[ServicePing]:
        """Who is there."""
        return self._ask("PING", ServicePing, name, id, timeout, stall)

    def info(
        self, name: str = "", id: str = "", *, timeout: Seconds = 2.0, stall: Seconds = 0.3
    ) -> AsyncIterator[ServiceInfo]:
        """What they are for."""
        return self._ask("INFO", ServiceInfo, name, id, timeout, stall)

    def stats(
        self, name: str = "", id: str = "", *, timeout: Seconds = 2.0, stall: Seconds = 0.3
    ) -> AsyncIterator[ServiceStats]:
        """What they have done."""
        return self._ask("STATS", ServiceStats, name, id, timeout, stall)

    async def _ask(
        self, verb: str, kind: type[Reply], name: str, id: str, timeout: Seconds, stall: Seconds
    ) -> AsyncIterator[Reply]:
        if id and not name:
            raise ClientError("services: an id needs the name of its service too")
        subject = ".".join(["$SRV", verb, *(part for part in (name, id) if part)])
        answers = self._connection.request_many(
            subject, timeout=timeout, stall=stall, max_messages=1 if id else None
        )
        try:
            async for answer in answers:
                try:
                    said = msgspec.json.decode(answer.data, type=kind)
                except msgspec.DecodeError as error:
                    # Somebody else answers too; the services are to be found all the same.
                    self._connection.report_error(
                        ProtocolError(f"services: an answer to {subject} can not be read: {error}")
                    )
                    continue
                yield said
        except NoRespondersError:
            return  # nobody there is an answer too
        finally:
            await answers.aclose()
