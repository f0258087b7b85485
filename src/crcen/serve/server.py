"""The inference server: routes, limits, decision log, audits, labels, reload, and worker processes."""

import asyncio
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from crcen import InvalidInput, InvalidParameter, __version__
from crcen._support.text import listed
from crcen.serve import http, requests
from crcen.serve.decision_log import DecisionLog, LabelledRows
from crcen.serve.http import LOOPBACK, Guard, Handler, Metrics, json_response
from crcen.serve.requests import Options, Row, by_row
from crcen.serve.served_model import FEW_ROWS, Scored, ServedModel
from crcen.theory.price import Goal, Price
from crcen.theory.selective import audit_draws

Array = NDArray[np.float64]
T = TypeVar("T")

# Bodies up to this size are answered in the event loop, which is faster than a thread.
_SMALL_BODY = 8_192
_ABOUT = {"name": "crcen", "version": __version__, "extensions": ["binary_tensor_data"]}
_OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")
# Workers that end sooner than this are not started again at once.
_SHORTEST_LIFE = 1.0


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
        needs_token = (
            f"host {self.host} is reachable from other machines and needs a token: give --token or --token-file."
        )
        no_share = f"audit must be a share from 0 to 1, such as 1%: got {self.audit:g}."
        no_audit, no_log = "default_action must go with audit=.", "log_inputs= and audit= need log=, the decision log."
        for is_wrong, message, parameters in (
            (not http.is_loopback(self.host) and not self.token, needs_token, ("host",)),
            (self.token is not None and len(self.token) < 8, "token must have at least 8 characters.", ("token",)),
            (not 0.0 <= self.audit < 1.0, no_share, ("audit",)),
            (self.default_action is not None and not self.audit, no_audit, ("default_action", "audit")),
            (self.log is None and (self.log_inputs or self.audit), no_log, ("log_inputs", "audit", "log")),
        ):
            if is_wrong:
                raise InvalidParameter(message, parameter=parameters)


class Service:
    """Models and what is recorded about their answers; `asgi` is the application."""

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
        hosts = LOOPBACK | {settings.host} if http.is_loopback(settings.host) and settings.token is None else None
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
        app = http.routed(
            [(method, path, handler) for method, path, handler, _ in self._endpoints], count=self.metrics.request
        )
        self.asgi = Guard(app, settings.token, hosts, open_paths=_OPEN_PATHS)

    # Requests with rows

    async def predict(self, request: Request) -> object:
        """Rows as JSON or CSV."""
        body = await self._body(request)
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind not in ("application/json", "text/csv", "application/x-www-form-urlencoded", ""):
            raise InvalidInput(f"content type must be application/json or text/csv: got {kind[:60]}.")
        query, is_csv = dict(request.query_params), kind == "text/csv"
        return await self._run(lambda: self._predict(body, is_csv, query), len(body) + _SMALL_BODY * is_csv)

    def _predict(self, body: bytes, is_csv: bool, query: dict[str, str]) -> dict[str, object]:
        rows: Sequence[Row] = []
        options, is_single = Options(), False
        if not is_csv:
            rows, options, is_single = requests.json_rows(body, self.settings.max_rows)
        served = self._model({**options, **query}.get("model"))
        if is_csv:
            rows = requests.csv_rows(body, served.model, self.settings.max_rows)
        elif "rows" in served.columns and options:
            raise InvalidInput("this model has a column named rows: send a row, or a list of rows.")
        scored, columns = self._scored(served, rows, {**options, **query})
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
        rows, options, request = requests.tensor_rows(body, length, self.settings.max_rows)
        scored, more = self._scored(served, rows, {**options, "model": None})
        texts = {
            name: ["; ".join(cell) if isinstance(cell, list) else cell for cell in cells]
            for name, cells in {**more, "notes": scored.notes}.items()
        }
        p = scored.p if served.positive is None else scored.p[:, served.positive]
        decisions = [str(one) for one in scored.decisions]
        columns: dict[str, Sequence[object]] = {"probability": p.ravel().tolist(), "decision": decisions, **texts}
        kinds = {"probability": "FP64", "audit": "BOOL", "audit_probability": "FP64"}
        outputs: list[dict[str, object]] = []
        binary = b""
        for name, is_binary in _wanted_outputs(request, list(columns)).items():
            kind = kinds.get(name, "BYTES")
            output = {"name": name, "datatype": kind, "shape": list(p.shape) if name == "probability" else [len(p)]}
            if is_binary:
                data = requests.tensor_bytes(columns[name], kind)
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

    def _scored(
        self, served: ServedModel, rows: Sequence[Row], options: Options
    ) -> tuple[Scored, dict[str, Sequence[object]]]:
        """Decide rows and record the decisions: the result, and further columns of the answer."""
        price = requests.price_of(served.price, served.model.classes_.tolist(), options)
        id_column = self.settings.id if options.get("id") is None else str(options["id"])
        ids = _ids(rows, id_column)
        scored = served.score(rows, price, id_column)
        more: dict[str, Sequence[object]] = {"id": ids}
        if n_reasons := requests.whole_number(options.get("reasons") or 0, "reasons"):
            more |= served.reasons(rows, n_reasons, scored)
        quiet = scored.chosen == (scored.names.index(served.default) if served.default in scored.names else -1)
        audits: dict[str, Sequence[object]] = {}
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
        found = await self._run(lambda: labels.add(served, requests.json_body(body)), _SMALL_BODY + 1)
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
        text = http.TEMPLATES.get_template("openapi.json.j2").render(
            version=__version__,
            has_token=self.settings.token is not None,
            paths={
                path: (method.lower(), about) for method, path, _, about in self._endpoints if "version" not in path
            },
            options=requests.OPTIONS,
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
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self.settings.timeout):
                async for part in request.stream():
                    size += len(part)
                    if size > most:
                        raise too_large
                    parts.append(part)
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {self.settings.timeout:g} s.") from None
        return b"".join(parts)

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
            raise HTTPException(
                503, f"the request took longer than {self.settings.timeout:g} s: send fewer rows."
            ) from None
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


def _price_values(price: Price | Goal) -> dict[str, object]:
    if not isinstance(price, Price):
        return {"goal": str(price)}
    if price.costs is not None:
        return {"costs": price.costs.costs.tolist(), "actions": list(price.costs.actions)}
    if price.positive is None:
        return {"weights": price.weights.tolist()}
    return {"cost_ratio": float(f"{price.cost_ratio:.12g}")}


def _wanted_outputs(request: dict[str, object], names: list[str]) -> dict[str, bool]:
    """Outputs by name, and whether each is a binary tensor; all of them if none is asked for."""

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
    with http.bound_socket(settings.host, port) as sock, tempfile.TemporaryDirectory(prefix="crcen-serve-") as folder:
        address = f"http://{shown}:{sock.getsockname()[1]}"
        if workers > 1:
            settings = replace(settings, metrics=Path(folder) / "metrics", workers=workers)
        service = Service(settings)  # creates shared counters, and refuses what workers would refuse
        if workers > 1:
            _supervise(settings, sock, lambda: started(address))
        else:
            started(address)
            http.run_server(service.asgi, sock, service.reload)


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
    http.run_server(service.asgi, sock, service.reload)


def _supervise(settings: Settings, sock: socket.socket, started: Callable[[], None]) -> None:
    """Start workers, start them again if they die, and pass signals on."""
    context = multiprocessing.get_context("spawn")
    workers: list[tuple[SpawnProcess, float]] = []
    ended: list[int] = []

    def start(i: int) -> tuple[SpawnProcess, float]:
        found = context.Process(target=_work, args=(replace(settings, worker=i), sock), daemon=True)
        found.start()
        return found, time.monotonic()

    def reload(*caught: object) -> None:
        for worker, _ in workers:
            if worker.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGHUP)

    with http.signals_to({**dict.fromkeys(http.ENDS, lambda number, _: ended.append(number)), signal.SIGHUP: reload}):
        workers += [start(i) for i in range(settings.workers)]
        started()
        while not ended:
            time.sleep(0.1)
            for i, (worker, birth) in enumerate(workers):
                if not worker.is_alive() and time.monotonic() - birth > _SHORTEST_LIFE:
                    sys.stderr.write(f"crcen: worker {i} ended with status {worker.exitcode} and is started again\n")
                    workers[i] = start(i)
        for worker, _ in workers:
            worker.terminate()
        end = time.monotonic() + http.GRACE_SECONDS + 5
        for worker, _ in workers:
            worker.join(max(0.1, end - time.monotonic()))
            worker.kill()
