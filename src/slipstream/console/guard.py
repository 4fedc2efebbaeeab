"""What a request must bring before a page sees it, and what every answer carries.

* A `Host` of this machine, or one that was allowed by name: a page elsewhere whose name was pointed
  at this address (DNS rebinding) has another.
* For what changes something: the `Origin` of the console itself, and the session's own token in a
  header, which a page elsewhere can neither read nor send.
* A session; without one the login page answers.

With `read_only` nothing that changes something gets through, whatever the pages show. The content
security policy allows scripts and styles from the console's own files alone, nothing inline.
"""

import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from slipstream.console.options import ACCESS, LOCAL_NAMES, ConsoleOptions
from slipstream.console.sessions import Session, Sessions

WITHOUT_SESSION = ("/static/", "/login")
ALWAYS_ALLOWED = frozenset({"/login", "/logout"})  # they change nothing on the server
READING = frozenset({"GET", "HEAD"})
SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def cookie_name(options: ConsoleOptions) -> str:
    """Browsers share cookies between the ports of a host, so the port is in its name."""
    return f"slipstream_console_{options.port}"


class Guard:
    """Wraps the app."""

    def __init__(self, app: ASGIApp, options: ConsoleOptions, sessions: Sessions) -> None:
        self._app = app
        self._options = options
        self._sessions = sessions
        self._cookie = cookie_name(options)
        self._hosts = LOCAL_NAMES | set(options.hosts) | {options.host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        answer, new = await self._answer(request)
        app: ASGIApp = answer or self._app
        await app(scope, receive, self._sender(request, send, new))

    async def _answer(self, request: Request) -> tuple[Response | None, Session | None]:
        """The refusal, or None if a page may answer; and the session that begins with it."""
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal, None
        path = request.url.path
        session = self._sessions.find(request.cookies.get(self._cookie, ""))
        new = None
        if session is None and request.method in READING and not path.startswith("/static/"):
            key = request.query_params.get(ACCESS, "") if path == "/" else ""
            if self._sessions.is_open or key:
                session = new = await self._sessions.enter(key)
            if session is not None and key:
                return RedirectResponse(
                    f"{self._options.base}/", 303
                ), new  # the key leaves the address bar
        request.scope.setdefault("state", {})["session"] = session
        if session is None and not path.startswith(WITHOUT_SESSION):
            return _to_login(request, self._options), None
        if request.method not in READING and path != "/login":
            token = request.headers.get("x-csrf-token", "")
            if session is None or not secrets.compare_digest(token.encode(), session.csrf.encode()):
                text = "This page is older than your session. Load it again, and try once more."
                return PlainTextResponse(text, 403), None
        return None, new

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if urlsplit(f"//{host}").hostname not in self._hosts:
            return PlainTextResponse(
                f"The console does not answer to the host {host!r}. "
                "Start it with --allow-host to add a name.",
                421,
            )
        if request.method in READING:
            return _foreign() if _is_part_of_another_page(request.headers) else None
        if not _is_own(request.headers, host):
            return _foreign()
        if self._options.read_only and request.url.path not in ALWAYS_ALLOWED:
            text = "The console is read-only: it was started with --read-only."
            return PlainTextResponse(text, 403)
        return None

    def _sender(self, request: Request, send: Send, new: Session | None) -> Send:
        is_static = request.url.path.startswith("/static/")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-cache" if is_static else "no-store")
                if new is not None:
                    headers.append("set-cookie", session_cookie(request, self._options, new.id))
            await send(message)

        return send_with_headers


def session_cookie(request: Request, options: ConsoleOptions, session_id: str) -> str:
    """The header that has the browser keep a session, or forget it with an empty id."""
    ending = "; Secure" if request.url.scheme == "https" else ""  # a proxy said so
    ending += "" if session_id else "; Max-Age=0"
    path = options.base or "/"
    return f"{cookie_name(options)}={session_id}; Path={path}; HttpOnly; SameSite=Strict{ending}"


def _foreign() -> Response:
    return PlainTextResponse("This was not sent by a page of the console.", 403)


def _is_part_of_another_page(headers: Headers) -> bool:
    """Whether a page elsewhere asks for it, as an image or script of its own, say."""
    is_foreign = headers.get("sec-fetch-site") == "cross-site"
    return is_foreign and headers.get("sec-fetch-mode") != "navigate"


def _is_own(headers: Headers, host: str) -> bool:
    """Whether the console's own page sent it."""
    origin = urlsplit(headers.get("origin", ""))
    return origin.scheme in ("http", "https") and origin.netloc == host


def _to_login(request: Request, options: ConsoleOptions) -> Response:
    address = f"{options.base}/login"
    if request.headers.get("hx-request"):
        return Response(status_code=401, headers={"HX-Redirect": address})
    if request.method in READING:
        return RedirectResponse(address, 303)
    return PlainTextResponse("Log in first.", 401)
