"""What the header of a model file says about the model: anyone can read it, and no model is made for it."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any

from crcen._support.extras import installed_versions
from crcen._support.text import printable
from crcen._support.values import json_value
from crcen.theory.shown import Shown, in_one_line

__all__ = ["ModelInfo", "check_manifest", "manifest_of", "innermost"]

_PACKAGES = ("crcen", "numpy", "scikit-learn", "torch", "skrub", "pandas")
_WEIGHTING = ("lam", "alpha", "cost_ratio", "threshold", "n_pos", "n_neg")
_CLASS_WEIGHTING = ("class_weights", "class_counts")


@dataclass(frozen=True)
class ModelInfo(Shown):
    """What the header of a model file says; reading it makes no object of the file.

    Parameters
    ----------
    format : int
        Version of the file format.
    model : str
        The estimator's name.
    created : str
        When it was written, UTC.
    python : str
        Version of Python.
    versions : dict of str to str
        Versions of the libraries.
    classes : list
        Labels in sorted order.
    positive : label
        The positive class; None where there are more than two.
    target : str or None
        Name of the target column, where there was one.
    weighting : dict or None
        ``lam``, ``alpha``, ``cost_ratio``, ``threshold``, ``n_pos`` and ``n_neg``: the price of decisions and the
        rows of training; ``class_weights`` and ``class_counts`` in the order of the classes where there are more than
        two; None for a pipeline that knows no price.
    columns : list of dict
        Input columns: name, kind, and whether training rows lacked cells.
    dropped : list of dict
        Columns that training left out: name and reason.
    """

    format: int
    model: str
    created: str
    python: str
    versions: dict[str, str]
    classes: list[Any]
    positive: Any
    target: str | None
    weighting: dict[str, Any] | None
    columns: list[dict[str, Any]]
    dropped: list[dict[str, str]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    __repr__ = in_one_line

    def __str__(self) -> str:
        kinds = [one["kind"] for one in self.columns]
        counted = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
        libraries = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        lines = [
            f"{self.model}, written {self.created} (format {self.format})",
            *self._target(),
            *self._price(),
            f"  columns         {len(self.columns)}: {counted}",
            *(
                f"    {one['name']:24s} {one['kind']}{', lacked cells' if one.get('has_missing') else ''}"
                for one in self.columns
            ),
            *(f"    {one['name']:24s} left out: {one['reason']}" for one in self.dropped),
            f"  written with    python {self.python}, {libraries}",
        ]
        return "\n".join(map(printable, lines))

    def _target(self) -> list[str]:
        target, classes = self.target or "not named", ", ".join(map(str, self.classes))
        if len(self.classes) > 2:
            return [f"  classes         {classes}   (target {target})"]
        return [f"  positive class  {self.positive}   (target {target}, classes {classes})"]

    def _price(self) -> list[str]:
        if self.weighting is None:
            return ["  price           none: an alarm above probability 0.5"]
        if "class_weights" in self.weighting:
            table = zip(self.classes, *(self.weighting[name] for name in _CLASS_WEIGHTING), strict=True)
            return [f"    {label!s:24s} weight {weight:.6g}, {count:.12g} rows" for label, weight, count in table]
        said = {name: f"{value:.6g}" for name, value in self.weighting.items()}
        return [
            f"  trained on      {said['n_pos']} positive and {said['n_neg']} negative rows",
            f"  price           a miss is worth {said['cost_ratio']} false alarms (λ = {said['lam']}, "
            f"α = {said['alpha']}); an alarm above probability {said['threshold']}",
        ]


def manifest_of(model: Any) -> dict[str, Any]:
    """What the header says: all of `ModelInfo` but the format."""
    weighting = _weighting_of(model)
    columns, dropped = _columns_of(model)
    of_classes = len(model.classes_) > 2 or hasattr(weighting, "counts")
    return {
        "model": type(model).__name__,
        "created": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "python": platform.python_version(),
        "versions": installed_versions(_PACKAGES),
        "classes": json_value(model.classes_),
        "positive": None if of_classes else json_value(innermost(model, "pos_label_", model.classes_[1])),
        "target": innermost(model, "target_name_", None),
        "weighting": None if weighting is None else _numbers(weighting),
        "columns": columns,
        "dropped": dropped,
    }


def _last(model: Any) -> Any:
    """The classifier inside a pipeline or a correction, or None."""
    steps = getattr(model, "steps", None)
    return steps[-1][1] if steps else getattr(model, "estimator_", None)


def innermost(model: Any, name: str, otherwise: Any) -> Any:
    """An attribute of a model, or of the classifier in it."""
    while model is not None:
        if hasattr(model, name):
            return getattr(model, name)
        model = _last(model)
    return otherwise


def _numbers(weighting: Any) -> dict[str, Any]:
    """A resolved weighting in plain numbers."""
    if hasattr(weighting, "counts"):
        return dict(zip(_CLASS_WEIGHTING, (weighting.weights.tolist(), weighting.counts.tolist()), strict=True))
    return {name: getattr(weighting, name) for name in _WEIGHTING}


def _weighting_of(model: Any) -> Any:
    price = getattr(model, "price_", None)
    return innermost(model, "weighting_", None) if price is None else price


def _columns_of(model: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Input columns and those left out."""
    if hasattr(model, "columns_"):
        return [column.describe() for column in model.columns_], [asdict(one) for one in model.dropped_]
    if getattr(model, "steps", None) is None and hasattr(_last(model), "columns_"):
        return _columns_of(_last(model))
    names = getattr(model, "feature_names_in_", None)
    names = range(int(model.n_features_in_)) if names is None else names
    if not hasattr(model, "ensemble_"):
        return [{"name": str(name), "kind": "any", "has_missing": False} for name in names], []
    lacking = _lacking(model.ensemble_.members)
    return [{"name": str(name), "kind": "number", "has_missing": i in lacking} for i, name in enumerate(names)], []


def _lacking(members: Any) -> set[int]:
    """Numbers of the columns that lacked cells in training, as far as networks know."""
    found = [getattr(getattr(member, "encoding", None), "indicators", None) for member in members]
    return {int(column) for columns in found if columns is not None for column in columns}


def check_manifest(manifest: Any) -> None:
    """Raise unless every part is of the kind that `ModelInfo` says."""
    if set(manifest) != {field.name for field in fields(ModelInfo)} - {"format"}:
        raise ValueError("other parts")
    kinds = (str, int, float, bool, type(None))
    texts = [manifest["model"], manifest["created"], manifest["python"], manifest["target"] or ""]
    texts += [*manifest["versions"].values(), *(one["name"] for one in manifest["columns"] + manifest["dropped"])]
    texts += [*(one["kind"] for one in manifest["columns"]), *(one["reason"] for one in manifest["dropped"])]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError("a text that is none")
    for text in texts:
        text.encode()  # halves of letters cannot be printed
    if not all(isinstance(label, kinds) for label in [*manifest["classes"], manifest["positive"]]):
        raise TypeError("a label that is none")
    weighting = manifest["weighting"]
    if weighting is None:
        return
    if set(weighting) == set(_CLASS_WEIGHTING):
        lists = [weighting[name] for name in _CLASS_WEIGHTING]
        if not all(isinstance(one, list) and len(one) == len(manifest["classes"]) for one in lists):
            raise TypeError("weights that are not of the classes")
        numbers = [number for one in lists for number in one]
    else:
        numbers = [weighting[name] for name in _WEIGHTING]
    if not all(isinstance(number, int | float) for number in numbers):
        raise TypeError("a number that is none")
