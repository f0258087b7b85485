"""What the server and the application share: access control, routes with JSON errors, counters, and the web server."""

import asyncio
import gc
import hmac
import inspect
import json
import logging
import re
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from urllib.parse import parse_qs

import numpy as np
import uvicorn
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from crcen.exceptions import CrcenError, InvalidParameter

# Returns a response, or a value for JSON; functions that are not asynchronous run in a thread.
Handler = Callable[[Request], object]
Endpoint = tuple[str, str, Handler]  # method, path, handler
Reload = Callable[[], list[str]]

TEMPLATES = Environment(
    loader=PackageLoader("crcen.serve", "."), autoescape=True, trim_blocks=True, undefined=StrictUndefined
)
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ENDS = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 10
_LOGGER = logging.getLogger("crcen.serve")
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CODES = ("2xx", "3xx", "4xx", "5xx")
_ROWS = {
    "rows": "Rows decided.",
    "alarms": "Rows with another decision than the default one.",
    "unlike": "Rows unlike training: extreme, unseen or missing values.",
    "audits": "Rows without an alarm that were drawn for an audit.",
    "labels": "Labels received.",
}
# Columns of the counters: requests by status, by time, and seconds; then rows of each model.
_N_TIMES = len(_CODES) + len(_BOUNDS) + 1
_N_REQUESTS = _N_TIMES + 1


def is_loopback(host: str) -> bool:
    """Whether a server at this address is reachable from its own machine only."""
    return host in LOOPBACK or host.startswith("127.")


class Guard:
    """An ASGI application that passes on requests with the right token, host and origin; others get 403.

    The token is ``Authorization: Bearer TOKEN``, or ``?token=`` if ``in_query``; ``open_paths`` need none. ``hosts``
    are allowed names in the header ``Host``, against DNS rebinding; None for any.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str | None,
        hosts: frozenset[str] | None,
        *,
        in_query: bool = False,
        open_paths: tuple[str, ...] = (),
    ) -> None:
        self._app, self._hosts, self._in_query, self._open = app, hosts, in_query, open_paths
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        why = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if why is None else json_response({"error": why}, 403))(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = {name: value for name, value in scope["headers"] if name in (b"host", b"origin", b"authorization")}
        host = headers.get(b"host", b"").decode("latin-1")
        name = re.sub(r":\d*$", "", host.lower()).strip("[]")  # without the port
        if self._hosts is not None and name not in self._hosts:
            return f"the host must be one of {', '.join(sorted(self._hosts))}: got {host[:60]!r}."
        if b"origin" in headers and headers[b"origin"].decode("latin-1").partition("://")[2] != host:
            return "requests from pages of other origins are refused."
        if self._token is None or scope["path"] in self._open:
            return None
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer":
            query = scope["query_string"].decode("latin-1") if self._in_query else ""
            given = parse_qs(query).get("token", [""])[0].encode()
        return None if hmac.compare_digest(given.strip(), self._token) else "a valid token is required."


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Strict JSON that is never cached."""
    text = json.dumps(value, allow_nan=False, default=str)
    return Response(text, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")


def routed(
    endpoints: Iterable[Endpoint],
    errors: tuple[type[Exception], ...] = (CrcenError,),
    count: Callable[[int, float], None] = lambda *_: None,
) -> Starlette:
    """An application whose errors are JSON with one sentence.

    ``errors`` are mistakes of the caller, with status 422; others are logged and get 500. ``count`` takes the status
    and seconds of each request.
    """

    def answered(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        is_async = inspect.iscoroutinefunction(handler)

        async def route(request: Request) -> Response:
            start = time.perf_counter()
            try:
                running = handler(request) if is_async else run_in_threadpool(handler, request)
                assert isinstance(running, Awaitable)
                found = await running
                response = found if isinstance(found, Response) else json_response(found)
            except HTTPException as error:
                response = json_response({"error": error.detail}, error.status_code, error.headers)
            except ClientDisconnect:
                response = json_response({"error": "the client closed the connection."}, 400)
            except errors as error:
                response = json_response({"error": " ".join(str(error).split())}, 422)
            except Exception:
                _LOGGER.exception("internal error in %s", request.url.path)
                response = json_response({"error": "internal error: see the log of the server."}, 500)
            count(response.status_code, time.perf_counter() - start)
            return response

        return route

    routes = [Route(path, answered(handler), methods=[method]) for method, path, handler in endpoints]
    return Starlette(routes=routes, exception_handlers={HTTPException: _http_error})


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason = {404: f"there is nothing at {request.url.path[:60]}.", 405: f"{request.method} is not allowed here."}
    return json_response({"error": reason.get(error.status_code, str(error.detail))}, error.status_code, error.headers)


class Metrics:
    """Counters by model; each worker adds to its own row of a file that all of them map.

    The file is created by the first process; one worker needs none.
    """

    def __init__(self, models: Sequence[str], path: Path | None = None, worker: int = 0, n_workers: int = 1) -> None:
        self._models = list(models)
        shape = (n_workers, _N_REQUESTS + len(_ROWS) * len(self._models))
        if path is None:
            self._all = np.zeros(shape)
        else:
            self._all = np.memmap(path, np.float64, "r+" if path.exists() else "w+", shape=shape)
        self._own = self._all[worker]

    def request(self, status: int, seconds: float) -> None:
        """Count a request."""
        self._own[min(max(status // 100 - 2, 0), 3)] += 1
        self._own[len(_CODES) + int(np.searchsorted(_BOUNDS, seconds))] += 1
        self._own[_N_TIMES] += seconds

    def add(self, model: str, **counts: float) -> None:
        """Count rows of a model."""
        start = _N_REQUESTS + len(_ROWS) * self._models.index(model)
        self._own[start : start + len(_ROWS)] += [counts.get(name, 0) for name in _ROWS]

    def text(self, gauges: Mapping[str, Mapping[str, float]]) -> str:
        """The exposition format; ``gauges`` has further values by name and model."""
        total = np.asarray(self._all.sum(axis=0))
        lines = ["# HELP crcen_requests_total Requests by status.", "# TYPE crcen_requests_total counter"]
        lines += [f'crcen_requests_total{{status="{code}"}} {total[i]:.0f}' for i, code in enumerate(_CODES)]
        lines += ["# HELP crcen_request_seconds Time to answer.", "# TYPE crcen_request_seconds histogram"]
        counts = np.cumsum(total[len(_CODES) : _N_TIMES])
        bounds = [*map(str, _BOUNDS), "+Inf"]
        lines += [f'crcen_request_seconds_bucket{{le="{b}"}} {n:.0f}' for b, n in zip(bounds, counts, strict=True)]
        lines += [f"crcen_request_seconds_sum {total[_N_TIMES]:.6f}", f"crcen_request_seconds_count {counts[-1]:.0f}"]
        by_model = total[_N_REQUESTS:].reshape(len(self._models), len(_ROWS)).T
        for (name, text), values in zip(_ROWS.items(), by_model, strict=True):
            lines += [f"# HELP crcen_{name}_total {text}", f"# TYPE crcen_{name}_total counter"]
            lines += [_sample(f"{name}_total", *one) for one in zip(self._models, values, strict=True)]
        for name, by_name in gauges.items():
            lines += [f"# TYPE crcen_{name} gauge", *(_sample(name, *one) for one in by_name.items())]
        return "\n".join(lines) + "\n"


def _sample(name: str, model: str, value: float) -> str:
    label = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'crcen_{name}{{model="{label}"}} {value:.12g}'


@contextmanager
def signals_to(handlers: Mapping[signal.Signals, Callable[[int, FrameType | None], object]]) -> Iterator[None]:
    """Handle signals so within the block."""
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Server(uvicorn.Server):
    """A server that reloads on SIGHUP, and ends with status 0 on SIGTERM and SIGINT."""

    reload: Reload | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        hup = {signal.SIGHUP: lambda *_: loop.call_soon_threadsafe(loop.run_in_executor, None, self._try_reload)}
        with signals_to({**dict.fromkeys(ENDS, self.handle_exit), **({} if self.reload is None else hup)}):
            yield

    def _try_reload(self) -> None:
        assert self.reload is not None
        try:
            _LOGGER.warning("models reloaded, changed: %s", ", ".join(self.reload()) or "none")
        except CrcenError as error:
            _LOGGER.error("models were not reloaded, the old ones stay: %s", error)


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket; a used port is an error with one sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is stated; with it some answers wait 40 ms for an ACK.
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((host, port))
    except (OSError, OverflowError) as error:
        found.close()
        why = getattr(error, "strerror", None) or str(error)
        raise InvalidParameter(f"port {port} at {host} cannot be used: {why}; try another --port.") from error
    found.listen(1024)
    return found


def run_server(app: ASGIApp, sock: socket.socket, reload: Reload | None = None) -> None:
    """Answer requests at a socket until SIGTERM or SIGINT; running requests are finished first."""
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        server_header=False,
        limit_concurrency=1000,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    if not _LOGGER.handlers:  # the library's own handler discards records
        _LOGGER.addHandler(logging.StreamHandler())
    gc.collect()
    gc.freeze()  # collections during requests pass over models and libraries
    server = _Server(config)
    server.reload = reload
    server.run([sock])
