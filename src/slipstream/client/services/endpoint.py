"""An endpoint: a subject, a handler, and what it has done."""

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from slipstream.client.codecs import CodecError
from slipstream.client.payload import Payload
from slipstream.client.services.replies import EndpointInfo, EndpointStats
from slipstream.client.services.request import ServiceError, ServiceRequest

if TYPE_CHECKING:
    from slipstream.client.connection import Connection
    from slipstream.client.message import Message
    from slipstream.client.subscriptions import Subscription

Answer = Payload | None
EndpointHandler = Callable[[ServiceRequest], Awaitable[Answer] | Answer]
logger = logging.getLogger("slipstream.client")


class Endpoint:
    """One endpoint of a service; `Service.add_endpoint` makes it."""

    def __init__(
        self,
        connection: "Connection",
        info: EndpointInfo,
        handler: EndpointHandler,
        concurrency: int,
        stats_data: Callable[["Endpoint"], Any] | None,
        report: Callable[[Exception], None],
        subscription_options: Mapping[str, Any],
    ) -> None:
        self._report = report
        self._subscription_options = subscription_options
        self.info = info
        self._connection = connection
        self._handler = handler
        self._concurrency = concurrency
        self._stats_data = stats_data
        self._subscription: Subscription | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.reset()

    @property
    def name(self) -> str:
        """Its name, unique in its service."""
        return self.info.name

    @property
    def subject(self) -> str:
        """Where it listens."""
        return self.info.subject

    def reset(self) -> None:
        """Count from zero."""
        self._requests = self._errors = self._nanoseconds = 0
        self._last_error = ""

    def stats(self) -> EndpointStats:
        """What it has done."""
        return EndpointStats(
            name=self.info.name,
            subject=self.info.subject,
            queue_group=self.info.queue_group,
            num_requests=self._requests,
            num_errors=self._errors,
            last_error=self._last_error,
            processing_time=self._nanoseconds,
            average_processing_time=self._nanoseconds // self._requests if self._requests else 0,
            data=self._stats_data(self) if self._stats_data is not None else None,
        )

    async def start(self) -> None:
        """Listen."""
        subscription = await self._connection.subscribe(
            self.info.subject, queue=self.info.queue_group, **self._subscription_options
        )
        self._subscription = subscription
        self._tasks = [
            self._connection.loop.create_task(
                self._serve(subscription), name=f"slipstream: endpoint {self.info.name}"
            )
            for _ in range(self._concurrency)
        ]

    async def stop(self) -> None:
        """Take no more requests; return once those that have come are answered."""
        subscription = self._subscription
        if subscription is None:
            return
        own = asyncio.current_task()
        if not self._connection.is_closed:
            # A handler that stops its own service answers the others when it returns.
            await (subscription.halt() if own in self._tasks else subscription.drain())
        tasks = [task for task in self._tasks if task is not own]
        if tasks:
            await asyncio.wait(tasks)

    def leave(self) -> None:
        """Take no more requests, and answer none of those that have come."""
        if self._subscription is not None and not self._subscription.closed:
            self._connection.subscriptions.drop(self._subscription.route)
            self._subscription.finish()
        self.abandon()

    def abandon(self) -> list[asyncio.Task[None]]:
        """Stop at once, since the connection is closed; the tasks to wait for."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        return tasks

    async def _serve(self, subscription: "Subscription") -> None:
        telemetry = self._connection.telemetry
        try:
            async for message in subscription:
                if telemetry is None:
                    await self._answer(message)
                    continue
                with telemetry.process(message, queue=subscription.queue, template=self.subject):
                    await self._answer(message)
        except Exception as error:
            self._report(error)  # the subscription was refused

    async def _answer(self, message: "Message") -> None:
        """Let the handler answer one request, and count it."""
        request = ServiceRequest(message)
        begin = time.perf_counter_ns()
        try:
            result = self._handler(request)
            answer = await result if inspect.isawaitable(result) else result
            if answer is not None:
                await request.respond(answer)
        except ServiceError as error:
            await self._refuse(request, error.code, error.description, error.data)
        except CodecError as error:
            await self._refuse(request, 400, str(error), b"")
        except Exception as error:
            logger.exception("endpoint %s raised", self.info.name)
            await self._refuse(request, 500, str(error) or type(error).__name__, b"")
        self._requests += 1
        self._nanoseconds += time.perf_counter_ns() - begin
        if request.error:
            self._errors += 1
            self._last_error = request.error

    async def _refuse(
        self, request: ServiceRequest, code: int, description: str, data: Payload
    ) -> None:
        request.error = f"{code}:{description}"
        if not request.message.reply or self._connection.is_closed:
            return
        try:
            await request.respond_error(code, description, data)
        except Exception as error:
            self._report(error)
