"""Access to a server: token, host and origin of every request, before anything else is read."""

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

__all__ = ["LOOPBACK", "Guard", "is_loopback"]

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


def is_loopback(host: str) -> bool:
    """Whether a server at this address is reachable from its own machine only."""
    return host in LOOPBACK or host.startswith("127.")


class Guard:
    """An ASGI application that passes on requests with the right token, host and origin; others get 403.

    Parameters
    ----------
    app : ASGI application
        What is protected.
    token : str or None
        Required as ``Authorization: Bearer TOKEN``, or in the query if ``in_query``.
    hosts : frozenset of str or None
        Names in the header ``Host`` that are allowed, against DNS rebinding; None for any.
    in_query : bool
        Whether ``?token=`` is accepted.
    open_paths : tuple of str
        Paths that need no token.
    """

    def __init__(
        self,
        app: App,
        token: str | None,
        hosts: frozenset[str] | None,
        *,
        in_query: bool = False,
        open_paths: tuple[str, ...] = (),
    ) -> None:
        self._app, self._hosts, self._in_query, self._open = app, hosts, in_query, open_paths
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] == "http" and (why := self._refusal(scope)) is not None:
            body = json.dumps({"error": why}).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = {name: value for name, value in scope["headers"] if name in (b"host", b"origin", b"authorization")}
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and _hostname(f"//{host}") not in self._hosts:
            return f"the host must be one of {', '.join(sorted(self._hosts))}: got {host[:60]!r}."
        if b"origin" in headers:
            origin = headers[b"origin"].decode("latin-1")
            if origin.partition("://")[2] != host:
                return "requests from pages of other origins are refused."
        if self._token is None or scope["path"] in self._open:
            return None
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer" and self._in_query:
            given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0].encode()
        elif kind.lower() != b"bearer":
            given = b""
        if not hmac.compare_digest(given.strip(), self._token):
            return "a valid token is required."
        return None


def _hostname(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None
