"""Guard of the live page: who may ask, and what a page may do.

The server listens on 127.0.0.1 only. Every address begins with a secret token, so that other users of the machine and
other pages in the browser cannot ask; a name that is pointed at 127.0.0.1 fails by its Host, another page's script by
its Origin. The policy of each answer keeps a page to its own files.
"""

import hmac
import os
import secrets
from contextlib import suppress

from platformdirs import user_state_path
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_HOSTS = ("127.0.0.1", "localhost")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:;"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)  # Plotly writes style elements
_HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",  # the address has the token
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware: refuse foreign requests, strip the token from the path, and add headers to every answer."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse or pass on one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_HEADERS)
            await send(message)

        first, _, rest = scope["path"].lstrip("/").partition("/")
        if refusal := self._refusal(Headers(scope=scope), first):
            await PlainTextResponse(refusal, 403)(scope, receive, send_guarded)
            return
        if scope["path"] == f"/{first}":  # relative links need the slash
            await RedirectResponse(f"/{first}/")(scope, receive, send_guarded)
            return
        inner = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode(), "root_path": ""}
        await self.app(inner, receive, send_guarded)

    def _refusal(self, headers: Headers, first: str) -> str:
        host = headers.get("host", "")
        if host.partition(":")[0] not in _HOSTS:
            return "This server answers to 127.0.0.1 and localhost only."
        if set(headers.getlist("origin")) - {f"http://{host}"}:
            return "Another page may not ask this server."
        if not hmac.compare_digest(first.encode(), self.token.encode()):
            return "Open the address that `saddlescope explore` printed: it has a token."
        return ""


def persistent_token() -> str:
    """Return the token of this user, which survives a restart, so that bookmarks do; a new one if it cannot be kept."""
    token = secrets.token_hex(16)
    with suppress(OSError, RuntimeError):  # else it lasts as long as the server
        file = user_state_path("saddlescope", appauthor=False, ensure_exists=True) / "explore-token"
        if file.exists() and (os.name == "nt" or not file.stat().st_mode & 0o077):  # Windows has no such bits
            kept = file.read_text("ascii", "replace").strip()
            if len(kept) >= 20 and kept.isalnum():
                return kept
        file.unlink(missing_ok=True)
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(token, "ascii")
    return token
