"""The inference server: routes, limits, decision log, audits, labels and reload."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import signal
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from crcen import CrcenError, InvalidInput, InvalidParameter, __version__
from crcen._support.text import listed
from crcen._support.values import json_value
from crcen.serve.decision_log import DecisionLog
from crcen.serve.guard import LOOPBACK, Guard, is_loopback
from crcen.serve.metrics import Metrics
from crcen.serve.monitoring import LabelledRows
from crcen.serve.openapi import openapi
from crcen.serve.price_options import OPTIONS, price_of, whole_number
from crcen.serve.request_rows import RequestRows, csv_rows, json_body, json_rows, tensor_rows
from crcen.serve.served_model import FEW_ROWS, Scored, ServedModel
from crcen.theory.price import Goal, Price
from crcen.theory.selective import AUDIT_FLOOR, audit_draws, audit_probabilities, audit_scores

__all__ = ["Service", "Settings", "application"]

Array = NDArray[np.float64]

_LOGGER = logging.getLogger("crcen.serve")
# Bodies up to this size are answered in the event loop, which is faster than a thread.
_SMALL_BODY = 8_192
_OPEN_PATHS = ("/v2/health/live", "/v2/health/ready")


@dataclass(frozen=True)
class Settings:
    """How models are served.

    Parameters
    ----------
    models : tuple of Path
        Model files.
    host : str
        Address to listen on; another one than loopback needs a token.
    token : str or None
        Required from clients.
    id : str or None
        Column with the identifier of each row.
    log : Path or None
        Decision log.
    log_inputs : bool
        Whether it holds inputs instead of their hash.
    log_bytes : int
        Size of a file of the log.
    audit : float
        Share of rows without an alarm that is drawn for audits.
    seed : int
        Of the draws.
    max_bytes, max_rows : int
        Limits of a request.
    timeout : float
        Seconds for a request.
    threads, queue : int
        Large requests that are answered at the same time, and that wait.
    metrics : Path or None
        Shared counters of several workers.
    worker, workers : int
        Number of this worker, and of all.
    """

    models: tuple[Path, ...]
    host: str = "127.0.0.1"
    token: str | None = None
    id: str | None = None
    log: Path | None = None
    log_inputs: bool = False
    log_bytes: int = 100_000_000
    audit: float = 0.0
    seed: int = 0
    max_bytes: int = 32_000_000
    max_rows: int = 100_000
    timeout: float = 30.0
    threads: int = 2
    queue: int = 16
    metrics: Path | None = None
    worker: int = 0
    workers: int = 1

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and not self.token:
            raise InvalidParameter(
                f"host {self.host} is reachable from other machines and needs a token: give --token or --token-file.",
                parameter="host",
            )
        if self.token is not None and len(self.token) < 8:
            raise InvalidParameter("token must have at least 8 characters.", parameter="token")
        if not 0.0 <= self.audit < 1.0:
            raise InvalidParameter(
                f"audit must be a share from 0 to 1, such as 1%: got {self.audit:g}.", parameter="audit"
            )
        if (self.log_inputs or self.audit) and self.log is None:
            raise InvalidParameter("log_inputs and audit need log=, the decision log.", parameter=("log_inputs", "log"))


class Service:
    """Models and what is recorded about their answers; `asgi` is the application.

    Parameters
    ----------
    settings : Settings
        How models are served.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        found = [ServedModel(Path(path)) for path in settings.models]
        self.models = {one.name: one for one in found}
        if len(self.models) < len(found):
            raise InvalidParameter(f"model files must have different names: got {listed(one.name for one in found)}.")
        self.log = None if settings.log is None else DecisionLog(settings.log, settings.log_bytes)
        self.metrics = Metrics(list(self.models), settings.metrics, settings.worker, settings.workers)
        self.labels = None if self.log is None else LabelledRows(self.log)
        self._scales = {one.name: self._audit_scale(one) for one in found}
        self._pool = ThreadPoolExecutor(settings.threads, thread_name_prefix="crcen-serve")
        self._n_waiting = 0
        hosts = LOOPBACK | {settings.host} if is_loopback(settings.host) and settings.token is None else None
        self.asgi = Guard(self._starlette(), settings.token, hosts, open_paths=_OPEN_PATHS)

    def _starlette(self) -> Starlette:
        routes: list[tuple[str, Any, str]] = [
            ("/predict", self.predict, "POST"),
            ("/labels", self.add_labels, "POST"),
            ("/models/reload", self.reload_models, "POST"),
            ("/monitor", self.monitor_page, "GET"),
            ("/metrics", self.metrics_text, "GET"),
            ("/openapi.json", self.describe, "GET"),
            ("/v2", self.about, "GET"),
            ("/v2/health/live", self.live, "GET"),
            ("/v2/health/ready", self.ready, "GET"),
            ("/v2/models/{name}", self.metadata, "GET"),
            ("/v2/models/{name}/versions/{version}", self.metadata, "GET"),
            ("/v2/models/{name}/ready", self.model_ready, "GET"),
            ("/v2/models/{name}/infer", self.infer, "POST"),
            ("/v2/models/{name}/versions/{version}/infer", self.infer, "POST"),
        ]
        return Starlette(
            routes=[Route(path, self._answer(handler), methods=[how]) for path, handler, how in routes],
            exception_handlers={HTTPException: _http_error},
        )

    def _answer(self, handler: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """A route: errors as JSON with one sentence, and counted."""

        async def route(request: Request) -> Response:
            start, status = time.perf_counter(), 500
            try:
                found = await handler(request)
                response = found if isinstance(found, Response) else _json(found)
            except HTTPException as error:
                response = _json({"error": error.detail}, error.status_code, error.headers)
            except CrcenError as error:
                response = _json({"error": " ".join(str(error).split())}, 422)
            except ClientDisconnect:
                response = _json({"error": "the client closed the connection."}, 400)
            except Exception:
                _LOGGER.exception("internal error in %s", request.url.path)
                response = _json({"error": "internal error: see the log of the server."}, 500)
            status = response.status_code
            self.metrics.request(status, time.perf_counter() - start)
            return response

        return route

    # Requests with rows

    async def predict(self, request: Request) -> Any:
        """Rows as JSON or CSV."""
        body = await self._body(request)
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind not in ("application/json", "text/csv", "application/x-www-form-urlencoded", ""):
            raise InvalidInput(f"content type must be application/json or text/csv: got {kind[:60]}.")
        query = dict(request.query_params)
        is_csv = kind == "text/csv"
        return await self._run(lambda: self._predict(body, is_csv, query), len(body) if not is_csv else _SMALL_BODY + 1)

    def _predict(self, body: bytes, is_csv: bool, query: dict[str, Any]) -> dict[str, Any]:
        given = None if is_csv else json_rows(body, self.settings.max_rows)
        options = query if given is None else {**given.options, **query}
        served = self._model(options.get("model"))
        if given is None:
            given = csv_rows(body, served.model, self.settings.max_rows)
        elif "rows" in served.columns and given.options:
            raise InvalidInput("this model has a column named rows: send a row, or a list of rows.")
        scored, ids, more = self._scored(served, given, options)
        values = _probabilities(served, scored)
        cells = zip(ids, values, scored.decisions, strict=True)
        predictions: list[dict[str, Any]] = [{"id": one, "probability": p, "decision": d} for one, p, d in cells]
        if len(ids) <= FEW_ROWS:
            more = {**more, "notes": scored.notes}
        for name, column in more.items():
            for prediction, cell in zip(predictions, column, strict=True):
                prediction[name] = cell
        about = {"model": served.name, "version": served.version, "threshold": scored.threshold}
        if given.is_single:
            predictions[0]["notes"] = scored.notes[0] + scored.all_notes
            return {**predictions[0], **about}
        return {**about, "predictions": predictions, "notes": scored.all_notes}

    async def infer(self, request: Request) -> Any:
        """Tensors of the Open Inference Protocol."""
        body = await self._body(request)
        length, name = request.headers.get("inference-header-content-length"), request.path_params["name"]
        self._check_version(request)
        return await self._run(lambda: self._infer(body, length, name), len(body))

    def _infer(self, body: bytes, length: str | None, name: str) -> dict[str, Any]:
        served = self._model(name)
        given, request = tensor_rows(body, length, self.settings.max_rows)
        options = {name: value for name, value in given.options.items() if name in OPTIONS}
        scored, ids, more = self._scored(served, given, {**options, "model": None})
        columns: dict[str, list[Any]] = {
            "probability": _probabilities(served, scored, plain=True),
            "decision": [str(one) for one in scored.decisions],
            **{
                name: ["; ".join(cell) if isinstance(cell, list) else cell for cell in cells]
                for name, cells in more.items()
            },
            "notes": ["; ".join(notes) for notes in scored.notes],
            "id": ids,
        }
        wanted = _wanted_outputs(request, list(columns))
        shapes = {"probability": [len(ids)] if served.positive is not None else [len(ids), len(served.classes)]}
        kinds = {"probability": "FP64", "audit": "BOOL", "audit_probability": "FP64"}
        outputs = [
            {
                "name": name,
                "datatype": kinds.get(name, "BYTES"),
                "shape": shapes.get(name, [len(ids)]),
                "data": columns[name],
            }
            for name in wanted
        ]
        request_id = request.get("id")
        answer: dict[str, Any] = {"model_name": served.name, "model_version": served.version, "outputs": outputs}
        if scored.all_notes:
            answer["parameters"] = {"notes": "; ".join(scored.all_notes)}
        return {**answer, **({"id": request_id} if isinstance(request_id, str) else {})}

    def _scored(
        self, served: ServedModel, given: RequestRows, options: dict[str, Any]
    ) -> tuple[Scored, list[str], dict[str, list[Any]]]:
        """Decide rows and record the decisions: the result, identifiers, and further columns of the answer."""
        price = price_of(served.model, options)
        ids = self._ids(given.rows, options.get("id"))
        scored = served.score(given.rows, price)
        more: dict[str, list[Any]] = {}
        n_reasons = whole_number(options.get("reasons") or 0, "reasons")
        if n_reasons:
            more["reasons"] = served.reasons(given.rows, n_reasons)
        quiet = scored.chosen == served.default
        n_audits = 0
        if self.settings.audit:
            e = self._audit_probabilities(served, scored.p, quiet)
            keys = np.array([int(one, 16) for one in _input_hashes(served, given.rows)], dtype=np.uint64)
            drawn = audit_draws(keys, e, self.settings.seed) | ~quiet
            n_audits = int((drawn & quiet).sum())
            more |= {"audit": drawn.tolist(), "audit_probability": e.tolist()}
        if self.log is not None:
            self._record(served, given.rows, scored, ids, price, more)
        counts = {"rows": len(ids), "alarms": int((~quiet).sum()), "unlike": scored.n_unlike, "audits": n_audits}
        self.metrics.add(served.name, **counts)
        return scored, ids, more

    def _record(
        self, served: ServedModel, rows: Any, scored: Scored, ids: list[str], price: Price | Goal, more: dict[str, Any]
    ) -> None:
        assert self.log is not None
        inputs: list[Any] = _plain_rows(served, rows) if self.settings.log_inputs else _input_hashes(served, rows)
        name = "inputs" if self.settings.log_inputs else "input_hash"
        about = {"model": served.name, "version": served.version, "price": _price_values(price)}
        audits = {one: more[one] for one in ("audit", "audit_probability") if one in more}
        entries = [
            {**about, "probability": p, "decision": decision, name: cells, **{one: audits[one][i] for one in audits}}
            for i, (p, decision, cells) in enumerate(
                zip(_probabilities(served, scored), scored.decisions, inputs, strict=True)
            )
        ]
        self.log.write(ids, entries)

    def _ids(self, rows: Any, column: Any) -> list[str]:
        name = self.settings.id if column is None else column
        if name is None:
            first = uuid.uuid4().hex
            return [first] if len(rows) == 1 else [f"{first}-{i}" for i in range(len(rows))]
        if isinstance(rows, list):
            found = [row.get(name) for row in rows]
        else:
            found = rows[name].tolist() if name in rows.columns else [None] * len(rows)
        for number, one in enumerate(found, 1):
            if one is None or isinstance(one, list | dict) or one != one:
                raise InvalidInput(
                    f"id {str(name)[:60]!r} must be a column with a value in each row: row {number} has none."
                )
        return [str(one) for one in found]

    def _audit_scale(self, served: ServedModel) -> float | None:
        """What multiplies audit scores so that the expected share holds on training rows; None for equal shares."""
        profile, column = getattr(served.model, "profile_", None), served.positive
        if not self.settings.audit or column is None or profile is None or not profile.scores:
            return None
        p = 1.0 / (1.0 + np.exp(-np.asarray(profile.scores[-1])))
        chances = np.stack([1.0 - p, p] if column else [p, 1.0 - p], axis=1)
        price: Price = served.model.weighting_
        scores, quiet = audit_scores(chances, price.weights), p <= price.threshold
        if not quiet.any():
            return None
        e = audit_probabilities(scores, quiet, self.settings.audit * float(quiet.sum()))[quiet]
        inside = (e > 1.0001 * e.min()) & (e < 1.0) & (scores[quiet] > 0.0)
        return float(np.median(e[inside] / scores[quiet][inside])) if inside.any() else None

    def _audit_probabilities(self, served: ServedModel, p: Array, quiet: NDArray[np.bool_]) -> Array:
        rate, scale = self.settings.audit, self._scales[served.name]
        if scale is None:
            return np.where(quiet, rate, 1.0)
        scores = audit_scores(p, served.model.weighting_.weights)
        return np.where(quiet, np.clip(scale * scores, AUDIT_FLOOR * rate, 1.0), 1.0)

    # Labels, monitor and metrics

    async def add_labels(self, request: Request) -> Any:
        """Labels by identifier."""
        body = await self._body(request)
        labels = self._labels()
        name = request.query_params.get("model")
        found = await self._run(lambda: labels.add(self._model(name), json_body(body)), _SMALL_BODY + 1)
        self.metrics.add(self._model(name).name, labels=found["labels"])
        return found

    async def monitor_page(self, request: Request) -> Any:
        """The page of the monitor."""
        page = self._labels().page(self._model(request.query_params.get("model")))
        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"}
        return Response(page, media_type="text/html; charset=utf-8", headers=headers)

    async def metrics_text(self, request: Request) -> Any:
        """Counters."""
        gauges = {} if self.labels is None else self.labels.gauges(self.models.values())
        return Response(self.metrics.text(gauges), media_type="text/plain; version=0.0.4; charset=utf-8")

    def _labels(self) -> LabelledRows:
        if self.labels is None or not self.settings.log_inputs:
            raise HTTPException(422, "labels and the monitor need a decision log: start with --log FILE --log-inputs.")
        return self.labels

    # Models

    async def reload_models(self, request: Request) -> Any:
        """Load the files again; other workers follow."""
        changed = await asyncio.get_running_loop().run_in_executor(self._pool, self.reload)
        if self.settings.workers > 1:
            os.kill(os.getppid(), signal.SIGHUP)
        return {"models": {name: one.version for name, one in self.models.items()}, "changed": changed}

    def reload(self) -> list[str]:
        """Replace models whose files have changed; a damaged file raises an error and nothing changes."""
        found = {name: ServedModel(one.path) for name, one in self.models.items()}
        changed = [name for name, one in found.items() if one.version != self.models[name].version]
        scales = {name: self._audit_scale(one) for name, one in found.items()}
        self.models, self._scales = found, scales
        return changed

    async def describe(self, request: Request) -> Any:
        """OpenAPI."""
        return openapi(self.models.values(), has_token=self.settings.token is not None)

    async def about(self, request: Request) -> Any:
        """The server."""
        return {"name": "crcen", "version": __version__, "extensions": ["binary_tensor_data"]}

    async def live(self, request: Request) -> Any:
        """Whether it runs."""
        return {"live": True}

    async def ready(self, request: Request) -> Any:
        """Whether models are loaded."""
        return {"ready": True}

    async def model_ready(self, request: Request) -> Any:
        """Whether a model is loaded."""
        return {"name": self._model(request.path_params["name"]).name, "ready": True}

    async def metadata(self, request: Request) -> Any:
        """Inputs and outputs of a model."""
        self._check_version(request)
        return self._model(request.path_params["name"]).metadata()

    def _model(self, name: Any) -> ServedModel:
        if name is None:
            if len(self.models) > 1:
                raise InvalidInput(f"several models are served: name one with ?model=, of {listed(self.models)}.")
            return next(iter(self.models.values()))
        found = self.models.get(name) if isinstance(name, str) else None
        if found is None:
            raise HTTPException(404, f"no model is named {str(name)[:60]!r}: there are {listed(self.models)}.")
        return found

    def _check_version(self, request: Request) -> None:
        version = request.path_params.get("version")
        served = self._model(request.path_params["name"])
        if version is not None and version != served.version:
            raise HTTPException(404, f"model {served.name} has version {served.version}: got {version[:60]!r}.")

    # Limits

    async def _body(self, request: Request) -> bytes:
        most = self.settings.max_bytes
        too_large = HTTPException(413, f"a body has at most {most:,} bytes: send several requests.")
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
            raise HTTPException(408, f"the body did not arrive within {self.settings.timeout:g} seconds.") from None
        return b"".join(parts)

    async def _run(self, work: Callable[[], Any], size: int) -> Any:
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
                503, f"the request took longer than {self.settings.timeout:g} seconds: send fewer rows."
            ) from None
        finally:
            self._n_waiting -= 1


def application(*models: str, **options: Any) -> Guard:
    """The ASGI application, for another server such as gunicorn with uvicorn workers."""
    return Service(Settings(tuple(Path(one) for one in models), **options)).asgi


def _json(value: Any, status: int = 200, headers: Any = None) -> Response:
    return Response(json.dumps(value, allow_nan=False), status, headers, "application/json")


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    reason = {404: f"there is nothing at {request.url.path[:60]}.", 405: f"{request.method} is not allowed here."}
    return _json({"error": reason.get(error.status_code, str(error.detail))}, error.status_code, error.headers)


def _probabilities(served: ServedModel, scored: Scored, *, plain: bool = False) -> list[Any]:
    """Of the positive class, or of every class: by label, or in one list row after row."""
    if served.positive is not None:
        return scored.p[:, served.positive].tolist()
    if plain:
        return scored.p.ravel().tolist()
    labels = [str(label) for label in served.classes]
    return [dict(zip(labels, row, strict=True)) for row in scored.p.tolist()]


def _plain_rows(served: ServedModel, rows: Any) -> list[dict[str, Any]]:
    """The model's columns of each row, ready for JSON."""
    if isinstance(rows, list):
        return [{name: row.get(name) for name in served.columns} for row in rows]
    columns = {
        name: [None if cell != cell else json_value(cell) for cell in rows[name].tolist()] for name in served.columns
    }
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _input_hashes(served: ServedModel, rows: Any) -> list[str]:
    """A hash of the model's columns of each row."""
    return [
        hashlib.blake2b(json.dumps(list(row.values()), default=str).encode(), digest_size=8).hexdigest()
        for row in _plain_rows(served, rows)
    ]


def _price_values(price: Price | Goal) -> dict[str, Any]:
    if not isinstance(price, Price):
        return {"goal": str(price)}
    if price.costs is not None:
        return {"costs": price.costs.costs.tolist(), "actions": list(price.costs.actions)}
    return (
        {"weights": price.weights.tolist()}
        if price.positive is None
        else {"cost_ratio": float(f"{price.cost_ratio:.12g}")}
    )


def _wanted_outputs(request: dict[str, Any], names: list[str]) -> list[str]:
    """Outputs that were asked for; probability and decision, reasons and notes by default."""
    asked = request.get("outputs")
    if asked is None:
        return names
    if not isinstance(asked, list) or not all(isinstance(one, dict) and one.get("name") in names for one in asked):
        raise InvalidInput(f"outputs must be a list of objects with a name of {', '.join(names)}.")
    return [one["name"] for one in asked]
