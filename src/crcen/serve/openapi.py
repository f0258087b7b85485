"""The description of the server for clients: OpenAPI 3.1, from the table of its routes."""

from collections.abc import Mapping, Sequence
from typing import Any

from crcen import __version__
from crcen.serve.requests import OPTIONS
from crcen.serve.served_model import ServedModel

Schema = dict[str, Any]  # nested JSON Schema

_CELLS = {"number": ["number", "string", "null"], "boolean": ["boolean", "string", "integer", "null"]}
_TEXT_CELL = ["string", "number", "boolean", "null"]
_LABEL = {"type": ["string", "number", "boolean"]}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_TEXTS = {"type": "array", "items": {"type": "string"}}
_ERRORS = {
    "403": "Missing or wrong token, foreign host or foreign origin",
    "408": "The body did not arrive in time",
    "413": "Body too large",
    "415": "Compressed body",
    "422": "Invalid request",
    "503": "Server busy, or time limit exceeded",
}


def openapi(summaries: Mapping[tuple[str, str], str], models: Sequence[ServedModel], *, has_token: bool) -> Schema:
    """The document for paths and methods with their summaries, and the models that are served now."""
    rows = {f"Row_{one.name}": _row(one) for one in models}
    any_row = {"anyOf": [_ref(name) for name in rows]}
    several = {"type": "array", "items": any_row, "minItems": 1}
    with_options = {
        "rows": several,
        "costs": {"type": ["array", "object"], "description": OPTIONS["costs"].text},
        "weighting": {"type": ["object", "string"], "description": OPTIONS["weighting"].text},
    }
    label = _object({"id": {"type": "string"}, "label": _LABEL}, "id", "label")
    bodies = {
        "/predict": {
            **_content({"anyOf": [any_row, several, _object(with_options, "rows")]}),
            **_content({"type": "string"}, "text/csv"),
        },
        "/labels": _content({"type": "array", "items": label}),
        "/v2/models/{name}/infer": _content(_object({}, "inputs")),
    }
    answers = {
        "/predict": _content({"anyOf": [_ref("Prediction"), _ref("Predictions")]}),
        "/monitor": _content({}, "text/html"),
        "/metrics": _content({}, "text/plain"),
    }
    errors = {code: {"description": why, "content": _content(_ref("Error"))} for code, why in _ERRORS.items()}
    paths: Schema = {}
    for (path, method), summary in summaries.items():
        found = {"200": {"description": "OK", "content": answers.get(path, _content({}))}, **errors}
        operation: Schema = {"summary": summary, "responses": found}
        if "{name}" in path:
            operation["parameters"] = [_parameter("name", "path", "string", "Name of the model")]
        if path == "/predict":
            asked = {name: option for name, option in OPTIONS.items() if name != "costs"}
            operation["parameters"] = [_parameter(name, "query", *one[:2]) for name, one in asked.items()]
        if path in bodies:
            operation["requestBody"] = {"required": True, "content": bodies[path]}
        paths[path] = {method: operation}
    labels = sorted({str(label) for one in models for label in one.classes})
    schemas = {"Error": _object({"error": {"type": "string"}}, "error"), **rows, **_predictions(labels)}
    token = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}} if has_token else {}
    return {
        "openapi": "3.1.0",
        "info": {"title": "crcen serve", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas, **token},
        **({"security": [{"token": []}]} if has_token else {}),
    }


def _content(schema: Schema, kind: str = "application/json") -> Schema:
    return {kind: {"schema": schema}}


def _ref(name: str) -> Schema:
    escaped = name.replace("~", "~0").replace("/", "~1")
    return {"$ref": f"#/components/schemas/{escaped}"}


def _object(properties: Schema, *required: str) -> Schema:
    return {"type": "object", "required": list(required), "properties": properties}


def _parameter(name: str, where: str, kind: str, text: str) -> Schema:
    return {"name": name, "in": where, "description": text, "schema": {"type": kind}, "required": where == "path"}


def _row(served: ServedModel) -> Schema:
    columns = {name: {"type": _CELLS.get(one.kind, _TEXT_CELL)} for name, one in served.columns.items()}
    return {"type": "object", "properties": columns, "minProperties": 1}


def _predictions(labels: list[str]) -> Schema:
    """One row has all of these in one object; a list has threshold and notes next to the predictions."""
    threshold = {"type": ["number", "null"]}
    prediction = {
        "id": {"type": "string"},
        "probability": {
            "description": "Of the positive class, or an object with one for each class",
            "anyOf": [_SHARE, {"type": "object", "properties": dict.fromkeys(labels, _SHARE)}],
        },
        "decision": _LABEL,
        "threshold": threshold,
        "notes": _TEXTS,
        "reasons": _TEXTS,
        "reasons_for": {"type": "string"},
        "audit": {"type": "boolean"},
        "audit_probability": _SHARE,
    }
    several = {
        "model": {"type": "string"},
        "version": {"type": "string"},
        "threshold": threshold,
        "predictions": {"type": "array", "items": _ref("Prediction")},
        "notes": _TEXTS,
    }
    return {
        "Prediction": _object(prediction, "id", "probability", "decision"),
        "Predictions": _object(several, *several),
    }
