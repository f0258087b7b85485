"""The description of the server for clients: OpenAPI 3.1."""

from collections.abc import Iterable
from typing import Any

from crcen import __version__
from crcen.serve.served_model import ServedModel

__all__ = ["openapi"]

_CELLS = {"number": ["number", "string", "null"], "boolean": ["boolean", "string", "integer", "null"]}
_TEXT_CELL = ["string", "number", "boolean", "null"]
_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_ERRORS = {
    "403": "Missing or wrong token, foreign host or foreign origin",
    "408": "The body did not arrive in time",
    "413": "Body too large",
    "422": "Invalid request",
    "503": "Server busy, or time limit exceeded",
}
_NUMBER_OPTIONS = {
    "budget": "False alarms that one more catch may cost",
    "cost_ratio": "What a miss costs, in false alarms",
    "alpha": "Cost ratio over negatives per positive",
    "lam": "Weight of a positive row",
    "recall": "Expected recall on the rows of this request",
    "precision": "Expected precision on the rows of this request",
}


def openapi(models: Iterable[ServedModel], *, has_token: bool) -> dict[str, Any]:
    """The document for the models that are served now."""
    models = list(models)
    rows = {f"Row_{one.name}": _row(one) for one in models}
    any_row = {"anyOf": [_ref(name) for name in rows]}
    price: dict[str, Any] = {
        "type": "object",
        "required": ["rows"],
        "properties": {
            "rows": {"type": "array", "items": any_row, "minItems": 1},
            "costs": {"description": "Cost matrix: a list of rows, or an object with costs, labels and actions"},
            "weighting": {"type": ["object", "string"], "description": "Weight of each class"},
        },
    }
    one_row = {"schema": {"anyOf": [any_row, {"type": "array", "items": any_row, "minItems": 1}, price]}}
    body = {"required": True, "content": {"application/json": one_row, "text/csv": {"schema": {"type": "string"}}}}
    answer = {"anyOf": [_ref("Prediction"), _ref("Predictions")]}
    named = [_parameter("name", "path", "string", "Name of the model")]
    infer = {"content": {"application/json": {"schema": {"type": "object", "required": ["inputs"]}}}, "required": True}
    label = {"type": ["string", "number", "boolean"]}
    labels_body = {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["id", "label"],
            "properties": {"id": {"type": "string"}, "label": label},
        },
    }
    paths: dict[str, Any] = {
        "/predict": _post("Probability and decision of rows", body, answer, _options()),
        "/labels": _post(
            "Labels of logged rows", {"content": {"application/json": {"schema": labels_body}}}, {"type": "object"}, []
        ),
        "/models/reload": _post("Load the model files again", None, {"type": "object"}, []),
        "/monitor": _get("Page of the monitor", "text/html"),
        "/metrics": _get("Metrics for Prometheus", "text/plain"),
        "/openapi.json": _get("This document"),
        "/v2": _get("Name and version of the server"),
        "/v2/health/live": _get("Whether the server runs"),
        "/v2/health/ready": _get("Whether the models are loaded"),
        "/v2/models/{name}": _get("Inputs and outputs of a model", parameters=named),
        "/v2/models/{name}/ready": _get("Whether a model is loaded", parameters=named),
        "/v2/models/{name}/infer": _post("Open Inference Protocol v2", infer, {"type": "object"}, named),
    }
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": "crcen serve", "version": __version__},
        "paths": paths,
        "components": {"schemas": {"Error": _ERROR, **rows, **_answers(models)}},
    }
    if has_token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
    return document


def _ref(name: str) -> dict[str, str]:
    escaped = name.replace("~", "~0").replace("/", "~1")
    return {"$ref": f"#/components/schemas/{escaped}"}


def _row(served: ServedModel) -> dict[str, Any]:
    columns = {name: {"type": _CELLS.get(one.kind, _TEXT_CELL)} for name, one in served.columns.items()}
    return {"type": "object", "properties": columns, "minProperties": 1}


def _answers(models: list[ServedModel]) -> dict[str, Any]:
    labels = sorted({str(label) for one in models for label in one.classes})
    share = {"type": "number", "minimum": 0, "maximum": 1}
    prediction = {
        "type": "object",
        "required": ["id", "probability", "decision"],
        "properties": {
            "id": {"type": "string"},
            "probability": {
                "description": "Of the positive class, or an object with one for each class",
                "anyOf": [share, {"type": "object", "properties": dict.fromkeys(labels, share)}],
            },
            "decision": {"type": ["string", "number", "boolean"]},
            "threshold": {"type": ["number", "null"]},
            "notes": {"type": "array", "items": {"type": "string"}},
            "reasons": {"type": "array", "items": {"type": "string"}},
            "audit": {"type": "boolean"},
            "audit_probability": share,
        },
    }
    # One row has all of these in one object; a list has threshold and notes beside the predictions.
    several = {
        "type": "object",
        "required": ["model", "version", "threshold", "predictions", "notes"],
        "properties": {
            "model": {"type": "string"},
            "version": {"type": "string"},
            "threshold": {"type": ["number", "null"]},
            "predictions": {"type": "array", "items": _ref("Prediction")},
            "notes": {"type": "array", "items": {"type": "string"}},
        },
    }
    return {"Prediction": prediction, "Predictions": several}


def _parameter(name: str, where: str, kind: str, text: str) -> dict[str, Any]:
    required = {"required": True} if where == "path" else {}
    return {"name": name, "in": where, "description": text, "schema": {"type": kind}, **required}


def _options() -> list[dict[str, Any]]:
    return [
        _parameter("model", "query", "string", "Name of the model; not needed if one is served"),
        _parameter("id", "query", "string", "Column with the identifier of each row"),
        _parameter("reasons", "query", "integer", "Reasons for each row"),
        *(_parameter(name, "query", "number", text) for name, text in _NUMBER_OPTIONS.items()),
        _parameter("capacity", "query", "integer", "Alarms among the rows of this request"),
        _parameter("balanced", "query", "boolean", "All classes weigh the same"),
        _parameter("weighting", "query", "string", "Weight of each class: fine=1,worn=5"),
    ]


def _get(text: str, kind: str = "application/json", parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"get": _operation(text, {kind: {"schema": {}}}, parameters or [])}


def _post(text: str, body: Any, answer: Any, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    found = _operation(text, {"application/json": {"schema": answer}}, parameters)
    return {"post": {**found, **({} if body is None else {"requestBody": body})}}


def _operation(text: str, content: Any, parameters: list[dict[str, Any]]) -> dict[str, Any]:
    errors = {
        code: {"description": why, "content": {"application/json": {"schema": _ref("Error")}}}
        for code, why in _ERRORS.items()
    }
    found = {"summary": text, "responses": {"200": {"description": "OK", "content": content}, **errors}}
    return {**found, **({"parameters": parameters} if parameters else {})}
