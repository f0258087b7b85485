"""The inference server: access control, routes, limits, decision log, audits, labels, reload, worker processes."""

import asyncio
import gc
import hmac
import inspect
import json
import logging
import multiprocessing
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar
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

from crcen import CrcenError, InvalidInput, InvalidParameter, __version__
from crcen._support.text import listed
from crcen.commands.inputs import require
from crcen.serve import served_model
from crcen.serve.decision_log import DecisionLog, LabelledRows
from crcen.serve.served_model import FEW_ROWS, Options, Row, Scored, ServedModel, by_row
from crcen.theory.goals import ThresholdGoal
from crcen.theory.price import Price
from crcen.theory.selective import audit_draws

# Returns a response, or a value for JSON; functions that are not asynchronous run in a thread.
Handler = Callable[[Request], object]
Endpoint = tuple[str, str, Handler]  # method, path, handler
Reload = Callable[[], list[str]]
T = TypeVar("T")
Columns = dict[str, Sequence[object]]  # of a response, by name

TEMPLATES = Environment(
    loader=PackageLoader("crcen.serve", "."), autoescape=True, trim_blocks=True, undefined=StrictUndefined
)
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
ENDS = (signal.SIGINT, signal.SIGTERM)
GRACE_SECONDS = 10
# Bodies up to this size are answered in the event loop, which is faster than a thread.
_SMALL_BODY = 8_192
_ABOUT = {"name": "crcen", "version": __version__, "extensions": ["binary_tensor_data"]}
_OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
_LOGGER = logging.getLogger("crcen.serve")
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_CODES = ("2xx", "3xx", "4xx", "5xx")
_ROWS = {
    "rows": "Rows decided.",
    "alarms": "Rows with a decision other than the default one.",
    "unlike": "Rows with extreme, unseen or unexpectedly missing values.",
    "audits": "Rows without an alarm that were drawn for an audit.",
    "labels": "Labels received.",
}
# Columns of the counters: requests by status, by time, and seconds; then rows of each model.
_N_TIMES = len(_CODES) + len(_BOUNDS) + 1
_N_REQUESTS = _N_TIMES + 1


def is_loopback(host: str) -> bool:
    """Whether a server at this address is reachable from its own machine only."""
    return host in LOOPBACK or host.startswith("127.")


@dataclass(frozen=True)
class Guard:
    """An ASGI application that passes on requests with the right token, host and origin; others get 403."""

    app: ASGIApp
    token: str | None  # ``Authorization: Bearer TOKEN``, or ``?token=`` if ``in_query``; ``open_paths`` need none
    hosts: frozenset[str] | None  # allowed names in the header ``Host``, against DNS rebinding; None for any
    in_query: bool = False
    open_paths: tuple[str, ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        why = self._refusal(scope) if scope["type"] == "http" else None
        await (self.app if why is None else json_response({"error": why}, 403))(scope, receive, send)

    def _refusal(self, scope: Scope) -> str | None:
        headers = {name: value for name, value in scope["headers"] if name in (b"host", b"origin", b"authorization")}
        host = headers.get(b"host", b"").decode("latin-1")
        name = re.sub(r":\d*$", "", host.lower()).strip("[]")  # without the port
        if self.hosts is not None and name not in self.hosts:
            return f"the host must be one of {', '.join(sorted(self.hosts))}: got {host[:60]!r}."
        if b"origin" in headers and headers[b"origin"].decode("latin-1").partition("://")[2] != host:
            return "requests from pages of other origins are rejected."
        if self.token is None or scope["path"] in self.open_paths:
            return None
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        if kind.lower() != b"bearer":
            query = scope["query_string"].decode("latin-1") if self.in_query else ""
            given = parse_qs(query).get("token", [""])[0].encode()
        return None if hmac.compare_digest(given.strip(), self.token.encode()) else "a valid token is required."


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
    absent = f"there is nothing at {request.url.path[:60]}; /openapi.json lists what is there."
    reason = {404: absent, 405: f"{request.method} is not allowed here."}
    return json_response({"error": reason.get(error.status_code, str(error.detail))}, error.status_code, error.headers)


class Metrics:
    """Counters by model; each worker adds to its own row of a file that all of them map.

    The file is created by the first process; one worker needs none.
    """

    def __init__(self, models: Sequence[str], path: Path | None = None, worker: int = 0, n_workers: int = 1) -> None:
        self._models = list(models)
        shape = (n_workers, _N_REQUESTS + len(_ROWS) * len(self._models))
        self._all = np.zeros(shape)
        if path is not None:
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
        lines += ["# HELP crcen_request_seconds Response time.", "# TYPE crcen_request_seconds histogram"]
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
            _LOGGER.error("models were not reloaded, the old ones stay in use: %s", error)


async def read_body(request: Request, most: int, too_large: HTTPException) -> bytes:
    """The body of a request; the error is raised for one of more bytes than ``most``."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise too_large
    return bytes(body)


def bound_socket(host: str, port: int) -> socket.socket:
    """A listening socket; a used port is an error with one sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is stated; with it some responses wait 40 ms.
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
    """Serve requests at a socket until SIGTERM or SIGINT; running requests are finished first."""
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


@dataclass(frozen=True)
class Settings:
    """How models are served."""

    models: tuple[Path, ...]  # model files
    # Address to listen on, and the token that clients send; any other address than loopback needs one
    host: str = "127.0.0.1"
    token: str | None = None
    id: str | None = None  # column with the identifier of each row
    log: Path | None = None  # decision log, with `log_inputs` of inputs instead of their hash, in files of `log_bytes`
    log_inputs: bool = False
    log_bytes: int = 100_000_000
    # Share of rows without an alarm that is drawn for audits, and the seed of the draws
    audit: float = 0.0
    seed: int = 0
    default_action: str | None = None  # decision without an alarm, for several classes
    # Limits of a request; the last one in seconds
    max_bytes: int = 32_000_000
    max_rows: int = 100_000
    timeout: float = 30.0
    # Large requests that are answered at the same time, and that wait
    threads: int = 2
    queue: int = 16
    # Shared counters of several workers, the number of this worker, and of all
    metrics: Path | None = None
    worker: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        needs_token = f"host {self.host} is reachable from other machines and needs a token: --token or --token-file."
        require(is_loopback(self.host) or self.token, needs_token, "host")
        require(self.token is None or len(self.token) >= 8, "token must have at least 8 characters.", "token")
        only_ascii = "token must hold ASCII characters only, as headers of HTTP do."
        require(self.token is None or self.token.isascii(), only_ascii, "token")
        share = f"audit must be a share from 0 to 1, such as 1%: got {self.audit:g}."
        require(0.0 <= self.audit < 1.0, share, "audit")
        for name in ("default_action", "seed"):
            require(self.audit or not getattr(self, name), f"{name} must go with audit=.", name, "audit")
        uses_log = self.log_inputs or self.audit or self.log_bytes != Settings.log_bytes
        no_log = "log_inputs=, log_size= and audit= need log=, the decision log."
        require(self.log is not None or not uses_log, no_log, "log_inputs", "log_size", "audit", "log")


class Service:
    """Models and the records of their decisions; `asgi` is the application."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        found = [self._load(Path(path)) for path in settings.models]
        self.models = {one.name: one for one in found}
        if len(self.models) < len(found):
            raise InvalidParameter(f"model files must have different names: got {listed(one.name for one in found)}.")
        self.log = None if settings.log is None else DecisionLog(settings.log, settings.log_bytes)
        self.metrics = Metrics(list(self.models), settings.metrics, settings.worker, settings.workers)
        self.labels = None if self.log is None else LabelledRows(self.log, settings.log_inputs)
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="crcen-serve")
        self._n_waiting = 0
        hosts = LOOPBACK | {settings.host} if is_loopback(settings.host) and settings.token is None else None
        # Method, path, handler and summary
        self._endpoints: list[tuple[str, str, Handler, str]] = [
            ("POST", "/predict", self.predict, "Probability and decision of rows"),
            ("POST", "/labels", self.add_labels, "Labels of logged rows"),
            ("POST", "/models/reload", self.reload_models, "Load the model files again"),
            ("GET", "/monitor", self.monitor_page, "Page of the monitor"),
            ("GET", "/metrics", self.metrics_text, "Metrics for Prometheus"),
            ("GET", "/openapi.json", self.describe, "This document"),
            ("GET", "/v2", lambda _: _ABOUT, "Name and version of the server"),
            ("GET", "/v2/health/live", lambda _: {"live": True}, "Whether the server runs"),
            ("GET", "/v2/health/ready", lambda _: {"ready": True}, "Whether the models are loaded"),
        ]
        ready = "Whether a model is loaded"
        for path in ("/v2/models/{name}", "/v2/models/{name}/versions/{version}"):
            self._endpoints += [
                ("GET", path, lambda request: self._named(request).metadata(), "Inputs and outputs of a model"),
                ("GET", f"{path}/ready", lambda request: {"name": self._named(request).name, "ready": True}, ready),
                ("POST", f"{path}/infer", self.infer, "Open Inference Protocol v2"),
            ]
        app = routed([one[:3] for one in self._endpoints], count=self.metrics.request)
        self.asgi = Guard(app, settings.token, hosts, open_paths=_OPEN_PATHS)

    # Requests with rows

    async def predict(self, request: Request) -> object:
        """Rows as JSON or CSV."""
        body = await self._body(request)
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind not in ("application/json", "text/csv", "application/x-www-form-urlencoded", ""):
            raise InvalidInput(f"content type must be application/json or text/csv: got {kind[:60]}.")
        query, is_csv = request.query_params.multi_items(), kind == "text/csv"
        return await self._run(lambda: self._predict(body, is_csv, query), len(body) + _SMALL_BODY * is_csv)

    def _predict(self, body: bytes, is_csv: bool, query: list[tuple[str, str]]) -> dict[str, object]:
        rows: Sequence[Row] = []
        options, is_single = Options(), False
        if not is_csv:
            rows, options, is_single = served_model.json_rows(body, self.settings.max_rows)
        given = [*options, *(name for name, _ in query)]
        require(len(given) == len(set(given)), f"each option must be stated once: got {listed(given, longest=40)}.")
        chosen = {**options, **dict(query)}
        served = self._model(chosen.get("model"))
        if is_csv:
            rows = served_model.csv_rows(body, served.model, self.settings.max_rows)
        elif "rows" in served.columns and options:
            raise InvalidInput("this model has a column named rows: send a row, or a list of rows.")
        scored, columns = self._scored(served, rows, chosen)
        columns = {"probability": served.probabilities(scored), "decision": scored.decisions, **columns}
        if len(rows) <= FEW_ROWS:
            columns["notes"] = scored.notes
        predictions = by_row(columns)
        about = {"model": served.name, "version": served.version, "threshold": scored.threshold}
        if is_single:
            return {**predictions[0], **about, "notes": scored.notes[0] + scored.all_notes}
        return {**about, "predictions": predictions, "notes": scored.all_notes}

    async def infer(self, request: Request) -> object:
        """Tensors of the Open Inference Protocol."""
        body = await self._body(request)
        length, served = request.headers.get("inference-header-content-length"), self._named(request)
        return await self._run(lambda: self._infer(body, length, served), len(body))

    def _infer(self, body: bytes, length: str | None, served: ServedModel) -> Response:
        rows, options, request = served_model.tensor_rows(body, length, self.settings.max_rows)
        scored, more = self._scored(served, rows, {**options, "model": None})
        texts = {
            name: ["; ".join(cell) if isinstance(cell, list) else cell for cell in cells]
            for name, cells in {**more, "notes": scored.notes}.items()
        }
        p = scored.p if served.positive is None else scored.p[:, served.positive]
        decisions = [str(one) for one in scored.decisions]
        columns: Columns = {"probability": p.ravel().tolist(), "decision": decisions, **texts}
        kinds = {"probability": "FP64", "audit": "BOOL", "audit_probability": "FP64"}
        outputs: list[dict[str, object]] = []
        binary = b""
        for name, is_binary in _wanted_outputs(request, list(columns)).items():
            kind = kinds.get(name, "BYTES")
            output = {"name": name, "datatype": kind, "shape": list(p.shape) if name == "probability" else [len(p)]}
            if is_binary:
                data = served_model.tensor_bytes(columns[name], kind)
                outputs.append({**output, "parameters": {"binary_data_size": len(data)}})
                binary += data
            else:
                outputs.append({**output, "data": columns[name]})
        answer: dict[str, object] = {"model_name": served.name, "model_version": served.version, "outputs": outputs}
        if scored.all_notes:
            answer["parameters"] = {"notes": "; ".join(scored.all_notes)}
        if isinstance(request.get("id"), str):
            answer["id"] = request["id"]
        if not any("parameters" in one for one in outputs):
            return json_response(answer)
        text = json.dumps(answer, allow_nan=False).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))}
        return Response(text + binary, headers=headers, media_type="application/octet-stream")

    def _scored(self, served: ServedModel, rows: Sequence[Row], options: Options) -> tuple[Scored, Columns]:
        """Decide rows and record the decisions: the result, and additional columns of the response."""
        price = served_model.price_of(served.price, served.model.classes_.tolist(), options)
        id_column = self.settings.id if options.get("id") is None else str(options["id"])
        ids = _ids(rows, id_column)
        scored = served.score(rows, price, id_column)
        more: Columns = {"id": ids}
        if n_reasons := served_model.whole_number(options.get("reasons") or 0, "reasons"):
            more |= served.reasons(rows, n_reasons, scored)
        quiet = scored.chosen == (scored.names.index(served.default) if served.default in scored.names else -1)
        audits: Columns = {}
        n_audits = 0
        if self.settings.audit:
            e = served.audit_probabilities(scored.p, quiet)
            keys = np.array([int(one, 16) for one in served.input_hashes(rows)], dtype=np.uint64)
            drawn = audit_draws(keys, e, self.settings.seed) | ~quiet
            n_audits = int((drawn & quiet).sum())
            audits = {"audit": drawn.tolist(), "audit_probability": e.tolist()}
        if self.log is not None:
            columns = {"probability": served.probabilities(scored), "decision": scored.decisions}
            if self.settings.log_inputs:
                columns["inputs"] = served.plain_rows(rows)
            else:
                columns["input_hash"] = served.input_hashes(rows)
            about = {"model": served.name, "version": served.version, "price": _price_values(price)}
            self.log.write(ids, [{**about, **entry} for entry in by_row({**columns, **audits})])
        n_alarms = len(rows) - int(quiet.sum())
        self.metrics.add(served.name, rows=len(rows), alarms=n_alarms, unlike=scored.n_unlike, audits=n_audits)
        return scored, {**more, **audits}

    # Labels, monitor and metrics

    async def add_labels(self, request: Request) -> object:
        """Labels by identifier."""
        body = await self._body(request)
        labels, served = self._labels(), self._model(request.query_params.get("model"))
        found = await self._run(lambda: labels.add(served, served_model.json_body(body)), _SMALL_BODY + 1)
        self.metrics.add(served.name, labels=found["labels"])
        return found

    def monitor_page(self, request: Request) -> object:
        """The page of the monitor."""
        page = self._labels().page(self._model(request.query_params.get("model")))
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"}
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)

    def metrics_text(self, request: Request) -> object:
        """Counters."""
        gauges = {} if self.labels is None else self.labels.gauges(self.models.values())
        return Response(self.metrics.text(gauges), media_type="text/plain; version=0.0.4; charset=utf-8")

    def _labels(self) -> LabelledRows:
        if self.labels is None:
            raise HTTPException(422, "labels and the monitor need a decision log: start with --log FILE --log-inputs.")
        return self.labels

    # Models

    async def reload_models(self, request: Request) -> object:
        """Load the files again; other workers follow."""
        changed = await asyncio.get_running_loop().run_in_executor(self._pool, self.reload)
        if self.settings.workers > 1:
            os.kill(os.getppid(), signal.SIGHUP)
        return {"models": {name: one.version for name, one in self.models.items()}, "changed": changed}

    def reload(self) -> list[str]:
        """Replace models whose files have changed; a damaged file raises an error and nothing changes."""
        found = {name: self._load(one.path) for name, one in self.models.items()}
        changed = [name for name, one in found.items() if one.version != self.models[name].version]
        self.models = found
        return changed

    def _load(self, path: Path) -> ServedModel:
        return ServedModel(path, self.settings.default_action, self.settings.audit)

    def describe(self, request: Request) -> object:
        """OpenAPI."""
        text = TEMPLATES.get_template("openapi.json.j2").render(
            version=__version__,
            has_token=self.settings.token is not None,
            paths={path: (method.lower(), text) for method, path, _, text in self._endpoints if "version" not in path},
            options=served_model.OPTIONS,
            models=list(self.models.values()),
            labels=sorted({str(label) for one in self.models.values() for label in one.classes}),
        )
        return Response(text, media_type="application/json")

    def _model(self, name: object) -> ServedModel:
        if name is None:
            if len(self.models) > 1:
                raise InvalidInput(f"several models are served: name one with ?model=, of {listed(self.models)}.")
            return next(iter(self.models.values()))
        found = self.models.get(name) if isinstance(name, str) else None
        if found is None:
            raise HTTPException(404, f"no model is named {str(name)[:60]!r}: there are {listed(self.models)}.")
        return found

    def _named(self, request: Request) -> ServedModel:
        """The model, and maybe version, in the path."""
        served, version = self._model(request.path_params["name"]), request.path_params.get("version")
        if version not in (None, served.version):
            raise HTTPException(404, f"model {served.name} has version {served.version}: got {version[:60]!r}.")
        return served

    # Limits

    async def _body(self, request: Request) -> bytes:
        most = self.settings.max_bytes
        too_large = HTTPException(413, f"a body has at most {most:,} bytes: send several requests.")
        if (encoding := request.headers.get("content-encoding", "identity")) != "identity":
            raise HTTPException(415, f"a body must be sent without compression: got {encoding[:60]}.")
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > most:
            raise too_large
        try:
            async with asyncio.timeout(self.settings.timeout):
                return await read_body(request, most, too_large)
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {self.settings.timeout:g} s.") from None

    async def _run(self, work: Callable[[], T], size: int) -> T:
        """Small requests at once; large ones in a thread, with a limited queue and a time limit."""
        if size <= _SMALL_BODY:
            return work()
        if self._n_waiting >= self.settings.threads + self.settings.queue:
            raise HTTPException(503, "the server is busy: try again in a second.", {"Retry-After": "1"})
        self._n_waiting += 1
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, work)
            return await asyncio.wait_for(future, self.settings.timeout)
        except TimeoutError:
            took = f"the request took longer than {self.settings.timeout:g} s"
            raise HTTPException(503, f"{took}: send fewer rows.") from None
        finally:
            self._n_waiting -= 1


def application(*models: str, **options: Any) -> Guard:
    """The ASGI application, for another server such as gunicorn with uvicorn workers."""
    return Service(Settings(tuple(Path(one) for one in models), **options)).asgi


def _ids(rows: Sequence[Row], column: str | None) -> list[str]:
    if column is None:
        first = uuid.uuid4().hex
        return [first] if len(rows) == 1 else [f"{first}-{i}" for i in range(len(rows))]
    for number, row in enumerate(rows, 1):
        if row.get(column) is None or isinstance(row[column], list | dict):
            raise InvalidInput(f"id {column[:60]!r} must be a column with a value in each row: row {number} has none.")
    return [str(row[column]) for row in rows]


def _price_values(price: Price | ThresholdGoal) -> dict[str, object]:
    if not isinstance(price, Price):
        return {"goal": str(price)}
    if price.costs is not None:
        return {"costs": price.costs.costs.tolist(), "actions": list(price.costs.actions)}
    if price.positive is None:
        return {"weights": price.weights.tolist()}
    return {"cost_ratio": float(f"{price.cost_ratio:.12g}")}


def _wanted_outputs(request: dict[str, object], names: list[str]) -> dict[str, bool]:
    """Outputs by name, and whether each is a binary tensor; all of them if none is requested."""

    def flag(parameters: object, name: str) -> object:
        return parameters.get(name) if isinstance(parameters, dict) else None

    is_binary = flag(request.get("parameters"), "binary_data_output") is True
    asked = request.get("outputs")
    if asked is None:
        return dict.fromkeys(names, is_binary)
    if not isinstance(asked, list) or not all(isinstance(one, dict) and one.get("name") in names for one in asked):
        raise InvalidInput(f"outputs must be a list of objects with a name of {', '.join(names)}.")
    flags = {one["name"]: flag(one.get("parameters"), "binary_data") for one in asked}
    return {name: is_binary if found is None else found is True for name, found in flags.items()}


def serve(settings: Settings, port: int, workers: int = 1, started: Callable[[str], None] = lambda _: None) -> None:
    """Serve models until a signal ends it; port 0 takes a free one, and ``started`` is called with the address."""
    shown = f"[{settings.host}]" if ":" in settings.host else settings.host
    with bound_socket(settings.host, port) as sock, tempfile.TemporaryDirectory(prefix="crcen-serve-") as folder:
        address = f"http://{shown}:{sock.getsockname()[1]}"
        if workers > 1:
            settings = replace(settings, metrics=Path(folder) / "metrics", workers=workers)
        service = Service(settings)  # creates shared counters, and refuses what workers would refuse
        if workers > 1:
            _supervise(settings, sock, lambda: started(address))
        else:
            started(address)
            run_server(service.asgi, sock, service.reload)


def _work(settings: Settings, sock: socket.socket) -> None:
    """A worker process; it ends with its parent."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the server handles it
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
    service = Service(settings)
    run_server(service.asgi, sock, service.reload)


def _supervise(settings: Settings, sock: socket.socket, started: Callable[[], None]) -> None:
    """Start workers, start them again if they die, and pass signals on."""
    context = multiprocessing.get_context("spawn")
    workers: list[SpawnProcess] = []
    ended: list[int] = []

    def start(i: int) -> SpawnProcess:
        found = context.Process(target=_work, args=(replace(settings, worker=i), sock), daemon=True)
        found.start()
        return found

    def reload(*caught: object) -> None:
        for worker in workers:
            if worker.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGHUP)

    with signals_to({**dict.fromkeys(ENDS, lambda number, _: ended.append(number)), signal.SIGHUP: reload}):
        workers += [start(i) for i in range(settings.workers)]
        started()
        while not ended:
            time.sleep(0.1)
            for i, worker in enumerate(workers):
                if not worker.is_alive():
                    sys.stderr.write(f"crcen: worker {i} ended with status {worker.exitcode} and is started again\n")
                    time.sleep(1.0)  # if it cannot start, it is not started again at once
                    workers[i] = start(i)
        for worker in workers:
            worker.terminate()
        end = time.monotonic() + GRACE_SECONDS + 5
        for worker in workers:
            worker.join(max(0.1, end - time.monotonic()))
            worker.kill()
