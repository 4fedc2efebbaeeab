"""What every page needs of a request: its session, and how to answer.

`Visit` finds the session's connection, reads forms, and makes answers: a page, a fragment, or,
after something was changed, the address to go on to with a notice of what was done.
"""

from collections.abc import AsyncIterator
from typing import Any

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse

from slipstream.client.jetstream.context import JetStream
from slipstream.console.bodies import Masks
from slipstream.console.options import ConsoleOptions
from slipstream.console.render import Renderer
from slipstream.console.sampler import Sampler
from slipstream.console.sessions import Session
from slipstream.errors import ConfigError


class FormError(ConfigError):
    """A form cannot be done as it was filled in."""


class Visit:
    """One request to a page, of somebody with a session."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.session: Session = request.state.session
        self.js: JetStream = self.session.workspace.js
        self.sampler: Sampler = self.session.workspace.sampler
        self.options: ConsoleOptions = request.app.state.options
        self.masks: Masks = request.app.state.masks
        self._renderer: Renderer = request.app.state.renderer

    def path(self, name: str) -> str:
        """A part of the path."""
        found: str = self.request.path_params[name]
        return found

    def asked(self, name: str) -> str:
        """A parameter of the query, "" without it."""
        return self.request.query_params.get(name, "").strip()

    def asked_number(self, name: str) -> int:
        """A parameter that counts, 0 without it. Raises `FormError`."""
        return whole_number(self.asked(name), name)

    def seen(self) -> int | None:
        """The last sequence that the browser has: of the page, or of an event before it lost us.

        None if it does not say. Raises `FormError`.
        """
        last = self.request.headers.get("last-event-id") or self.asked("after")
        return whole_number(last, "after") if last else None

    async def form(self) -> dict[str, str]:
        """The fields of a form that are text."""
        found = await self.request.form()
        return {name: value for name, value in found.items() if isinstance(value, str)}

    async def upload(self, name: str) -> UploadFile:
        """A file that a form brings. Raises `FormError`."""
        found = (await self.request.form()).get(name)
        if not isinstance(found, UploadFile) or not found.filename:
            raise FormError("Choose a file first.")
        return found

    async def confirmed(self, wanted: str) -> dict[str, str]:
        """A form in which the name of what is about to go was typed. Raises `FormError`."""
        form = await self.form()
        if form.get("confirm", "").strip() != wanted:
            raise FormError(f"Type {wanted!r} to confirm; nothing was changed.")
        return form

    def page(self, template: str, **names: Any) -> HTMLResponse:
        """A whole page."""
        return self._renderer.page(self.request, template, **names)

    async def stream_page(self, template: str, tab: str, **names: Any) -> HTMLResponse:
        """A whole page about the stream that the address names. Raises `Error` if there is none."""
        info = await self.js.stream_info(self.path("stream"))
        return self.page(template, info=info, tab=tab, **names)

    def text(self, template: str, **names: Any) -> str:
        """A fragment as text."""
        return self._renderer.text(template, names)

    def fragment(self, template: str, **names: Any) -> HTMLResponse:
        """A fragment as an answer."""
        return HTMLResponse(self.text(template, **names))

    def go(self, address: str, notice: str) -> Response:
        """Something was done: say so, on the page at `address`."""
        self.session.notices.append(notice)
        self.sampler.stale()
        return Response(status_code=204, headers={"HX-Redirect": self.options.base + address})

    def stream(self, events: AsyncIterator[str]) -> StreamingResponse:
        """Server-sent events, until the browser leaves."""
        return StreamingResponse(events, media_type="text/event-stream")


def event(name: str, data: str, sequence: int | None = None) -> str:
    """One server-sent event; with its sequence a browser that comes back says what it has seen."""
    lines = "\n".join(f"data: {line}" for line in data.splitlines() or [""])
    number = "" if sequence is None else f"id: {sequence}\n"
    return f"event: {name}\n{number}{lines}\n\n"


def whole_number(text: str, name: str) -> int:
    """A number that counts; 0 for nothing. Raises `FormError`."""
    digits = text.strip().replace(",", "").replace("_", "")
    if digits and not digits.isdecimal():
        raise FormError(f"{name} is a whole number, not {text!r}.")
    return int(digits or 0)
