"""The web application: its routes, its errors, and what opens and closes with it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from slipstream.cli.advice import one_line
from slipstream.client.errors import PermissionsError
from slipstream.client.jetstream.errors import (
    ConsumerNotFoundError,
    MessageNotFoundError,
    StreamNotFoundError,
)
from slipstream.client.kv.errors import BucketNotFoundError, KeyNotFoundError
from slipstream.client.object_store.errors import ObjectNotFoundError, StoreNotFoundError
from slipstream.console.bodies import Masks
from slipstream.console.guard import Guard
from slipstream.console.options import ConsoleOptions
from slipstream.console.pages import (
    connections,
    consumers,
    keys,
    live,
    login,
    messages,
    objects,
    overview,
    plots,
    queries,
    streams,
)
from slipstream.console.render import Renderer
from slipstream.console.sessions import Sessions
from slipstream.errors import Error

NOT_FOUND = (
    StreamNotFoundError, ConsumerNotFoundError, MessageNotFoundError, BucketNotFoundError,
    KeyNotFoundError, StoreNotFoundError, ObjectNotFoundError,
)  # fmt: skip
Endpoint = Callable[[Request], Awaitable[Response]]


def make_app(options: ConsoleOptions, sessions: Sessions) -> Starlette:
    """The console as an ASGI app; it opens `sessions` when it starts, and closes them."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await sessions.open()
        try:
            yield
        finally:
            await sessions.close()

    app = Starlette(
        routes=_routes(),
        middleware=[Middleware(Guard, options=options, sessions=sessions)],
        exception_handlers={Error: _failed, ValueError: _failed, HTTPException: _refused},
        lifespan=lifespan,
    )
    app.state.options = options
    app.state.sessions = sessions
    app.state.renderer = Renderer(options)
    app.state.masks = Masks(options.mask_headers, options.mask_fields)
    return app


def _routes() -> list[Route | Mount]:
    pages = (
        login, overview, streams, messages, live, consumers, keys, objects, queries, connections,
        plots,
    )  # fmt: skip
    routes: list[Route | Mount] = [
        Route(path, endpoint, methods=[method])
        for page in pages
        for method, path, endpoint in page.ROUTES
    ]
    files = StaticFiles(directory=Path(__file__).parent / "static")
    return [*routes, Mount("/static", files)]


def _status_of(error: Exception) -> int:
    if isinstance(error, NOT_FOUND):
        return 404
    return 403 if isinstance(error, PermissionsError) else 400


async def _failed(request: Request, error: Exception) -> Response:
    """The server, or the console itself, said no."""
    text = one_line(error) if isinstance(error, Error) else str(error)
    return _answer(request, _status_of(error), text)


async def _refused(request: Request, error: Exception) -> Response:
    """No page, or no such method."""
    assert isinstance(error, HTTPException)
    text = error.detail
    if error.status_code == 404:
        text = "There is no page at this address."
    return _answer(request, error.status_code, text)


def _answer(request: Request, status: int, text: str) -> HTMLResponse:
    """A notice above the page that asked, or a page of its own."""
    renderer: Renderer = request.app.state.renderer
    if request.headers.get("hx-request"):
        html = renderer.text("_error.html", {"text": text})
        headers = {"HX-Retarget": "#notices", "HX-Reswap": "innerHTML show:top"}
        return HTMLResponse(html, status, headers)
    return renderer.page(request, "error.html", status, text=text)
