"""Access to the live page: who may ask, and what a page may do.

The server listens on 127.0.0.1 only. Every address begins with a secret token, so that other users of the machine and
other pages in the browser cannot ask; a name that is pointed at 127.0.0.1 fails by its Host, another page's script by
its Origin. The policy of each answer keeps a page to its own files.
"""

import hmac
import os
import re
import secrets
from contextlib import suppress
from html import escape
from pathlib import Path

from platformdirs import user_state_path
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from saddlescope._shared.errors import InputError
from saddlescope._shared.output_paths import reason

_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?")  # a tunnel may have another port
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


class Access:
    """ASGI middleware: refuse foreign requests, take the token as the root path, and add headers to every answer."""

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

        first = scope["path"].lstrip("/").partition("/")[0]
        if refusal := self._refusal(Headers(scope=scope), first):
            await PlainTextResponse(refusal, 403)(scope, receive, send_guarded)
            return
        if scope["path"] == f"/{first}":  # relative links need the slash
            await RedirectResponse(f"/{first}/")(scope, receive, send_guarded)
            return
        await self.app({**scope, "root_path": f"/{first}"}, receive, send_guarded)  # redirects keep it

    def _refusal(self, headers: Headers, first: str) -> str:
        host = headers.get("host", "")
        if not _HOST.fullmatch(host):
            return "This server answers to 127.0.0.1 and localhost only."
        if set(headers.getlist("origin")) - {f"http://{host}"}:
            return "Another page may not ask this server."
        if not hmac.compare_digest(first.encode(), self.token.encode()):
            return "Open the address that `saddlescope explore` printed: it has a token."
        return ""


def opening_page(address: str) -> Path:
    """Return a page that leads to an address and that only this user can read.

    A browser that is given the address itself shows its token to all users of the machine, among its arguments.

    Raises:
        InputError: it cannot be written.
    """
    try:
        file = _state_folder() / f"explore-{address.split('/')[2].partition(':')[2]}.html"
        file.unlink(missing_ok=True)
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(f'<meta http-equiv="refresh" content="0; url={escape(address)}">\n', "utf-8")
    except (OSError, RuntimeError) as error:
        raise InputError(f"--open must be left out, since no page can be written for it: {reason(error)}.") from error
    return file


def _state_folder() -> Path:
    return user_state_path("saddlescope", appauthor=False, ensure_exists=True)


def persistent_token() -> str:
    """Return the token of this user, which survives a restart, so that bookmarks do; a new one if it cannot be kept."""
    token = secrets.token_hex(16)
    with suppress(OSError, RuntimeError):  # else it lasts as long as the server
        file = _state_folder() / "explore-token"
        if file.exists() and (os.name == "nt" or not file.stat().st_mode & 0o077):  # Windows has no such bits
            kept = file.read_text("ascii", "replace").strip()
            if len(kept) >= 20 and kept.isalnum():
                return kept
        file.unlink(missing_ok=True)
        file.touch(mode=0o600, exist_ok=False)
        file.write_text(token, "ascii")
    return token
