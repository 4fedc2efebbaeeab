"""Logging in as a user of the server, and out again."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from slipstream.client.errors import ConnectError
from slipstream.console.guard import session_cookie
from slipstream.console.options import ConsoleOptions
from slipstream.console.render import Renderer
from slipstream.console.sessions import Credentials, Session, Sessions


async def form(request: Request) -> Response:
    """Who are you?"""
    return _page(request)


def _page(request: Request, error: str = "", user: str = "", status: int = 200) -> Response:
    renderer: Renderer = request.app.state.renderer
    sessions: Sessions = request.app.state.sessions
    request.state.session = None  # also where somebody is logged in: this page shows nothing of it
    return renderer.page(
        request, "login.html", status, error=error, user=user, has_key=bool(sessions.key)
    )


async def log_in(request: Request) -> Response:
    """Connect as that user."""
    given = await request.form()
    found = {name: str(given.get(name, "")) for name in ("user", "password", "token")}
    credentials = Credentials(**found)
    if not credentials.user and not credentials.token:
        return _page(request, "Give a user and password, or a token.", status=400)
    if credentials.token:
        credentials = Credentials(token=credentials.token)
    sessions: Sessions = request.app.state.sessions
    options: ConsoleOptions = request.app.state.options
    try:
        session = await sessions.log_in(credentials)
    except ConnectError as error:
        return _page(request, str(error), credentials.user, 401)
    before: Session | None = request.state.session
    if before is not None:
        await sessions.end(before)
    cookie = session_cookie(request, options, session.id)
    return RedirectResponse(f"{options.base}/", 303, headers={"set-cookie": cookie})


async def log_out(request: Request) -> Response:
    """End the session, and its connection if it has one of its own."""
    sessions: Sessions = request.app.state.sessions
    session: Session = request.state.session
    await sessions.end(session)
    options: ConsoleOptions = request.app.state.options
    headers = {
        "HX-Redirect": f"{options.base}/login",
        "set-cookie": session_cookie(request, options, ""),
    }
    return Response(status_code=204, headers=headers)


ROUTES = (("GET", "/login", form), ("POST", "/login", log_in), ("POST", "/logout", log_out))
