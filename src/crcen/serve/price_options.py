"""Prices, goals and costs of one request: query parameters, or the parameters of the inference protocol."""

from collections.abc import Mapping
from typing import Any

from crcen import (
    Alpha,
    Budget,
    Capacity,
    CostMatrix,
    CostRatio,
    InvalidParameter,
    Lam,
    PrecisionAtLeast,
    RecallAtLeast,
)
from crcen._support.text import listed
from crcen._support.values import label_key
from crcen.theory.price import Goal, Price

__all__ = ["OPTIONS", "PRICES", "is_true", "price_of", "whole_number"]

_NUMBERS: dict[str, Any] = {
    "budget": Budget,
    "cost_ratio": CostRatio,
    "alpha": Alpha,
    "lam": Lam,
    "recall": RecallAtLeast,
    "precision": PrecisionAtLeast,
}
PRICES = (*_NUMBERS, "capacity", "balanced", "weighting", "costs")
# Everything that may be set for one request.
OPTIONS = (*PRICES, "model", "id", "reasons")


def price_of(model: Any, options: Mapping[str, Any]) -> Price | Goal:
    """The price or goal that decides the rows of a request; the price of the model if none is stated.

    Parameters
    ----------
    model : fitted classifier
        Its class counts resolve prices such as α.
    options : mapping
        At most one of `PRICES`: numbers (also as text), ``balanced``, ``capacity``, ``weighting`` (a dict, or
        "fine=1,broken=40") and ``costs`` (a matrix, or a dict with ``costs``, ``labels`` and ``actions``).
    """
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise InvalidParameter(f"unknown option {unknown[0]!r}: allowed are {', '.join(OPTIONS)}.")
    given = [name for name in PRICES if options.get(name) is not None and options[name] is not False]
    if len(given) > 1:
        raise InvalidParameter(f"{' and '.join(given)} both state the price: give one of them.")
    own: Price = model.weighting_
    costs = getattr(model, "costs_", None)
    if costs is not None and own.costs is None:
        own = Price(own.weights, own.counts, costs, own.positive)
    if not given:
        return own
    (name,), value = given, options[given[0]]
    if name == "costs":
        return own.replace(_costs(value, model.classes_.tolist()))
    if name == "weighting":
        return own.replace(_weights(value, model.classes_.tolist()))
    if name == "balanced":
        return own.replace("balanced") if is_true(value, name) else own
    if own.positive is None:
        raise InvalidParameter(
            f"{name} is for two classes, and this model has {len(model.classes_)}: state costs or weighting."
        )
    if name == "capacity":
        return Capacity(whole_number(value, name))
    kind = _NUMBERS[name]
    found = kind(_number(value, name))
    return found if isinstance(found, Goal) else own.replace(found)


def whole_number(value: Any, name: str) -> int:
    """A whole number, also as text."""
    number = _number(value, name)
    if not number.is_integer() or abs(number) > 2**31:
        raise InvalidParameter(f"{name} must be a whole number: got {_shown(value)}.")
    return int(number)


def is_true(value: Any, name: str) -> bool:
    """A truth value, also as text."""
    if isinstance(value, bool):
        return value
    text = str(value).lower()
    if text not in ("true", "1", "yes", "false", "0", "no", ""):
        raise InvalidParameter(f"{name} must be true or false: got {_shown(value)}.")
    return text in ("true", "1", "yes", "")


def _number(value: Any, name: str) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(f"{name} must be a number: got {_shown(value)}.") from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _weights(value: Any, labels: list[Any]) -> list[float]:
    """A weight for each class, in their order."""
    if isinstance(value, str):
        value = dict(part.rpartition("=")[::2] for part in value.split(","))
    if not isinstance(value, Mapping):
        raise InvalidParameter(f"weighting must have a weight for each class: got {_shown(value)}.")
    found = {label_key(label): weight for label, weight in value.items()}
    wanted = [label_key(label) for label in labels]
    if set(found) != set(wanted):
        raise InvalidParameter(f"weighting must have a weight for each of {listed(labels)}: got {_shown(value)}.")
    return [_number(found[key], "each weight") for key in wanted]


def _costs(value: Any, labels: list[Any]) -> CostMatrix:
    """Costs in the order of the classes."""
    stated = value if isinstance(value, Mapping) else {"costs": value}
    if set(stated) - {"costs", "labels", "actions"} or not isinstance(stated.get("costs"), list):
        raise InvalidParameter(
            f"costs must be a matrix, or an object with costs, labels and actions: got {_shown(value)}."
        )
    names = stated.get("labels") or labels
    keys = {label_key(label): label for label in labels}
    try:
        spelt = [keys.get(label_key(name), name) for name in names]
        found = CostMatrix(stated["costs"], labels=spelt, actions=[str(one) for one in stated.get("actions") or ()])
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InvalidParameter):
            raise
        raise InvalidParameter(f"costs must be a matrix of numbers: got {_shown(value)}.") from None
    return found.for_classes(labels)
