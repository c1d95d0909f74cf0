"""The status page: a browser draws it from /status.json with a script that comes with it.

Read-only, without cookies, and nothing in it is loaded from any other machine.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Awaitable, Callable
from importlib.resources import files

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pfl_common.spec import status_json
from pfl_common.spec.messages import RunStatus

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

HEADERS = {
    # Trusted types: no text can become markup in this page, not even by a mistake in its script.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

FOR_ANYBODY = ("/metrics", "/healthz", "/readyz")
"""Asked for by machines under whatever name they know; they tell nothing of sites."""

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]+))(?::\d*)?")


def assets() -> dict[str, bytes]:
    """The page's files by name."""
    found = (path for path in files(__name__).iterdir() if path.name.rpartition(".")[2] in KINDS)
    return {path.name: path.read_bytes() for path in sorted(found, key=lambda path: path.name)}


def routes(status: Callable[[], RunStatus]) -> list[Route]:
    """The page, its files, and the facts it shows."""

    async def tell(_: Request) -> Response:
        return Response(status_json.write(status()), media_type="application/json")

    held = assets()
    shown = [Route("/", _serving("index.html", held.pop("index.html"))), Route("/status.json", tell)]
    return shown + [Route(f"/static/{name}", _serving(name, content)) for name, content in held.items()]


class Guard:
    """Adds the page's security headers to every answer; on a loopback port, refuses requests under foreign host names.

    A page of the Web may give its own name the address 127.0.0.1 and would then read what only this machine shall
    (DNS rebinding): such a request still carries that page's name as its host.
    """

    def __init__(self, app: ASGIApp, *, loopback: bool) -> None:
        self._app, self._loopback = app, loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host", "")
        foreign = self._loopback and scope["path"] not in FOR_ANYBODY and not is_own_name(host)
        await (_refuse_host if foreign else self._app)(scope, receive, _with_headers(send))


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach a port at this address."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback


def is_own_name(host: str) -> bool:
    """Whether a Host header names this machine by a name that nobody can give to another address."""
    parts = _HOST.fullmatch(host.lower())
    if parts is None:
        return False
    name = (parts[1] or parts[2]).rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _serving(name: str, content: bytes) -> Callable[[Request], Awaitable[Response]]:
    kind = KINDS[name.rpartition(".")[2]]

    async def serve(_: Request) -> Response:
        return Response(content, headers={"content-type": kind})

    return serve


async def _refuse_host(scope: Scope, receive: Receive, send: Send) -> None:
    words = (
        "this port answers browsers on its own machine only, under localhost or 127.0.0.1; "
        "the name in this request is another: open http://localhost with the same port\n"
    )
    await PlainTextResponse(words, 421)(scope, receive, send)


def _with_headers(send: Send) -> Send:
    async def send_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return send_on
