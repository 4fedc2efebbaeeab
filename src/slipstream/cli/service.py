"""`slipstream service`: services that answer `$SRV.>` (ADR-32), found, measured and asked."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from time import perf_counter
from typing import Annotated, TypeVar

import msgspec
import typer

from slipstream.cli.config_options import header_of
from slipstream.cli.message.publish import Draft, HeaderOption, Templates, body_of
from slipstream.cli.message.text import received_json, say_bytes, show_body, show_headers
from slipstream.cli.output import clock, note, print_json, properties, say, table
from slipstream.cli.session import command, connection, new_app, wants_json
from slipstream.cli.values import show_duration
from slipstream.client.services import (
    ServiceError,
    ServiceInfo,
    ServicePing,
    ServiceRequest,
    ServiceStats,
)
from slipstream.errors import ConfigError
from slipstream.model.times import Timestamp

app = new_app("Find, measure and ask services.")

Name = Annotated[str, typer.Argument(metavar="SERVICE", help="The service")]
OptionalName = Annotated[str, typer.Argument(metavar="SERVICE", help="Without one: all")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Only this instance")]
Found = TypeVar("Found", bound=ServicePing)


async def _gather(answers: "AsyncIterator[Found]", name: str) -> list[Found]:
    """All who answered, in order of names. Raises `ConfigError` if nobody did."""
    found = sorted([one async for one in answers], key=lambda one: (one.name, one.version, one.id))
    if not found:
        what = f'no instance of "{name}"' if name else "no service"
        raise ConfigError(f"service: {what} answered; `slipstream service ls` lists those that do")
    return found


@command(app, "ls")
async def ls(name: OptionalName = "") -> None:
    """List services, or the instances of one."""
    async with connection() as nc:
        found = await _gather(nc.services.info(name), name)
    if wants_json():
        print_json([msgspec.to_builtins(one) for one in found])
        return
    rows = [(one.name, one.version, one.id, one.description) for one in found]
    title = f"{name} Service Instances" if name else "All Services"
    table(title, ("Name", "Version", "ID", "Description"), rows)


@command(app, "info")
async def info(
    name: Name,
    id: Id = "",
    endpoint: Annotated[
        str, typer.Option("--endpoint", "-e", help="Only endpoints of this name")
    ] = "",
) -> None:
    """Show what the instances of a service are for, and where they listen."""
    async with connection() as nc:
        found = await _gather(nc.services.info(name, id), name)
    for one in found:
        if endpoint:
            one.endpoints = [each for each in one.endpoints if each.name == endpoint]
    if wants_json():
        print_json([msgspec.to_builtins(one) for one in found])
        return
    for one in found:
        _show_info(one)


def _show_info(found: ServiceInfo) -> None:
    facts = [
        ("Service", f"{found.name} ({found.id})"),
        ("Description", found.description),
        ("Version", found.version),
        *((f"Metadata {key}", value) for key, value in sorted(found.metadata.items())),
    ]
    sections = [("", [(label, value) for label, value in facts if value])]
    for one in found.endpoints:
        pairs = [("Name", one.name), ("Subject", one.subject), ("Queue Group", one.queue_group)]
        pairs += [(f"Metadata {key}", value) for key, value in sorted(one.metadata.items())]
        sections.append(("Endpoint", [(label, value) for label, value in pairs if value]))
    properties("Service Information", sections)
    say()


@command(app, "stats")
async def stats(name: Name, id: Id = "") -> None:
    """Compare what the instances of a service have done."""
    async with connection() as nc:
        found = await _gather(nc.services.stats(name, id), name)
    if wants_json():
        print_json([msgspec.to_builtins(one) for one in found])
        return
    rows = [row for one in found for row in stats_rows(one)]
    columns = ("ID", "Endpoint", "Requests", "Queue Group", "Errors", "Processing Time",
               "Average Time", "Uptime")  # fmt: skip
    table(f"{name} Service Statistics", columns, rows)


def stats_rows(found: ServiceStats) -> list[tuple[str, ...]]:
    """A row for each endpoint of an instance."""
    began = Timestamp.parse(found.started) if found.started else None
    uptime = show_duration(max((datetime.now(UTC) - began).total_seconds(), 0)) if began else ""
    return [
        (
            found.id,
            one.name,
            f"{one.num_requests:,}",
            one.queue_group,
            f"{one.num_errors:,}",
            show_duration(one.processing_time),
            show_duration(one.average_processing_time),
            uptime,
        )
        for one in found.endpoints
    ]


@command(app, "ping")
async def ping(name: OptionalName = "") -> None:
    """Show who answers, and after how long."""
    found = 0
    async with connection() as nc:
        began = perf_counter()
        async for one in nc.services.ping(name):
            found += 1
            rtt = perf_counter() - began
            if wants_json():
                print_json({**msgspec.to_builtins(one), "rtt_ns": round(rtt * 1e9)})
            else:
                say(f"{one.name:<30} {one.id} rtt={show_duration(rtt)}")
    if not found:
        raise ConfigError("service ping: no service answered")


@command(app, "serve")
async def serve(
    name: Name,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="Of an answer, Name: value")
    ] = None,
) -> None:
    """Offer a service that sends requests on SERVICE.echo back, until Ctrl-C."""
    headers = dict(header_of(one) for one in header or [])

    async def echo(request: ServiceRequest[bytes]) -> None:
        message = request.message
        note(f'{clock()} Received on subject "{message.subject}": {len(message.data)} bytes')
        kept = {key: message.headers[key] for key in message.headers}
        await request.respond(message.data, headers={**kept, **headers})

    async with connection() as nc:
        service = await nc.add_service(name, "1.0.0", description="Sends requests back")
        await service.add_group(name).add_endpoint("echo", echo)
        await nc.flush()
        note(f'{clock()} Listening on "{name}.echo" as {service.id}')
        await asyncio.Event().wait()


@command(app, "request")
async def request(
    name: Name,
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="Its name")],
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="Without one: from stdin")
    ] = None,
    header: HeaderOption = [],  # noqa: B006 - Typer copies it
    raw: Annotated[bool, typer.Option("--raw", "-r", help="Only the answer's body")] = False,
    count: Annotated[int, typer.Option("--count", help="How many times", min=1)] = 1,
    translate: Annotated[str, typer.Option("--translate", help="Pipe bodies to this")] = "",
    templates: Templates = True,
) -> None:
    """Send a request to an endpoint of a service, wherever that listens."""
    draft = Draft(body_of(body), header, templates)
    async with connection() as nc:
        subject = await _subject_of(nc.services.info(name), name, endpoint)
        for n in range(1, count + 1):
            if not raw and not wants_json():
                note(f'{clock()} Sending request on "{subject}"')
            data, headers = draft.message(n)
            began = perf_counter()
            answer = await nc.request(subject, data, headers=headers)
            rtt = perf_counter() - began
            error = ServiceError.of(answer)
            if wants_json():
                print_json({**received_json(answer), "rtt_ns": round(rtt * 1e9)})
            elif raw:
                show_body(answer.data, translate) if translate else say_bytes(answer.data)
            else:
                note(f"{clock()} Received with rtt {show_duration(rtt)}")
                show_headers(answer.headers)
                show_body(answer.data, translate)
                say()
            if error is not None:
                raise ConfigError(f"service request: {name} answered with error {error}")


async def _subject_of(answers: "AsyncIterator[ServiceInfo]", name: str, endpoint: str) -> str:
    """Where an endpoint listens. Raises `ConfigError` where there is none."""
    found = await _gather(answers, name)
    known = {each.name: each.subject for one in found for each in one.endpoints}
    if endpoint not in known:
        raise ConfigError(
            f'service request: {name} has no endpoint "{endpoint}"; it has {", ".join(known)}'
        )
    return known[endpoint]
