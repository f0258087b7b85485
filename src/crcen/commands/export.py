"""export_onnx: a model as one ONNX graph, written only if it answers as the model does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crcen import CommitteeClassifier, CrcenError, InvalidInput, TableClassifier, __version__
from crcen._support.extras import need
from crcen._support.files import check_writable, write_atomic
from crcen._support.values import Values, attributes, json_value
from crcen.commands.inputs import model_of
from crcen.commands.onnx_graph import build_graph, check_columns, close_calls, is_networks, is_trees
from crcen.theory.rows import Array, Estimator, Rows, ShownInOneLine

_ROWS = 512
_TOLERANCE = 1e-9
_YEARS_1900_TO_2200 = (-2_208_988_800, 7_258_118_400)  # in seconds since 1970


@dataclass(frozen=True, repr=False)
class OnnxExport(ShownInOneLine):
    """A graph that was written; prints itself."""

    path: Path
    inputs: dict[str, str]  # name → "number", "text", or "seconds" since 1970-01-01 UTC for dates
    n_checked: int  # rows on which both were compared
    largest_difference: float  # between the graph's probabilities and `predict_proba`

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        return attributes(self, "path inputs checked_rows=n_checked largest_difference")

    def __str__(self) -> str:
        return (
            f"{len(self.inputs)} inputs, outputs probabilities and decision; on {self.n_checked} rows no probability "
            f"is more than {self.largest_difference:.1e} from predict_proba\nWritten to {self.path}"
        )


def export_onnx(model: Estimator, out: str | Path) -> OnnxExport:
    """Write a model as one ONNX graph in double precision: what `crcen export --onnx` does.

    Before it is written, onnxruntime must answer as the model does on artificial rows: ordinary and extreme numbers,
    missing cells, every category with white space and in another case, unseen ones.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    out : str or Path
        The ONNX file to write.

    Raises
    ------
    InvalidInput
        If a column, setting or member has no ONNX form: free text, another library's classifier in a committee.
    CrcenError
        If the graph does not answer as the model does.
    """
    onnx, runtime = need("onnx", "onnx"), need("onnxruntime", "onnx")
    check_writable(out, model)
    model = model_of(model)
    estimator = getattr(model, "estimator_", model)
    members = getattr(getattr(estimator, "ensemble_", None), "members", None)
    if members is None:
        raise InvalidInput(f"only models of crcen are exported: got {type(model).__name__}.")
    _reject([type(getattr(one, "model", one)).__name__ for one in members if not (is_networks(one) or is_trees(one))])
    proto = build_graph(model)
    classes = {"crcen": __version__, "classes": json.dumps([json_value(label) for label in model.classes_])}
    onnx.helper.set_model_props(proto, classes | _price(estimator))
    onnx.checker.check_model(proto)
    content = proto.SerializeToString()
    rows, feeds = _trial_rows(model)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    probabilities, decisions = session.run(["probabilities", "decision"], feeds)
    largest = float(np.abs(probabilities - model.predict_proba(rows)).max())
    close = close_calls(model.decision_function(rows), _TOLERANCE)  # a tie may fall either way
    labels = model.predict(rows)
    labels = labels.astype(np.int64) if labels.dtype.kind == "b" else labels
    same = (decisions.astype(str) == labels.astype(str)) | close
    if not largest <= _TOLERANCE or not same.all():
        raise CrcenError(
            f"the graph does not answer as the model does (probabilities differ by up to {largest:.1e}), so nothing "
            f"was written; please report this."
        )
    write_atomic(out, content)
    inputs = {one.name: "text" if one.type == "tensor(string)" else "number" for one in session.get_inputs()}
    inputs |= {one.name: "seconds" for one in getattr(model, "columns_", ()) if one.kind == "date"}
    return OnnxExport(Path(out), inputs, len(probabilities), largest)


def _price(estimator: Estimator) -> dict[str, str]:
    """What decisions are made by, as texts."""
    weighting = estimator.weighting_
    if weighting.positive is not None:
        numbers = {"cost_ratio": repr(weighting.cost_ratio), "threshold": repr(weighting.threshold)}
        return {"positive": json.dumps(json_value(estimator.pos_label_))} | numbers
    found = {"class_weights": json.dumps(weighting.weights.tolist())}
    if estimator.costs_ is not None:
        found["costs"] = json.dumps(estimator.costs_.costs.tolist())
        found["actions"] = json.dumps([json_value(action) for action in estimator.costs_.actions])
    return found


def check_exportable(model: Estimator, out: str | Path, *read: object) -> None:
    """Reject before a fit what `export_onnx` would reject after it: packages, files ``read``, columns, members."""
    for module in ("onnx", "onnxruntime"):
        need(module, "onnx")
    estimator = getattr(model, "estimator", model)
    if isinstance(estimator, CommitteeClassifier):
        members = [estimator.members] if isinstance(estimator.members, str) else list(estimator.members or ())
        _reject([type(member).__name__ for member in members if not isinstance(member, str)])
    check_writable(out, *read)
    check_columns(getattr(model, "columns_", ()))


def _reject(names: list[str]) -> None:
    """Reject members of other libraries."""
    if names:
        raise InvalidInput(
            f"a committee with a {names[0]} has no ONNX form here; leave it out of members, or predict in Python."
        )


def _trial_rows(model: Estimator) -> tuple[Rows, Values]:
    """Artificial rows for the model, and the same rows for the graph: ordinary, extreme, unseen and missing cells."""
    import pandas as pd

    rng = np.random.default_rng(0)
    estimator: Estimator = getattr(model, "estimator_", model)
    members = estimator.ensemble_.members
    used = list(getattr(model, "columns_", ()))
    texts = {one.name: _trial_texts(one.categories) for one in used if one.kind == "category"}
    n = max([_ROWS, *map(len, texts.values())])
    encoded = _encoded_rows(members, estimator.n_features_in_, n, rng)
    if not isinstance(model, TableClassifier):
        X = encoded
        if all(member.encoding.indicators is not None for member in members if is_networks(member)):
            X[rng.random(X.shape) < 0.1] = np.nan
        names = getattr(model, "feature_names_in_", None)
        return (X if names is None else pd.DataFrame(X, columns=names)), {"X": X}
    columns, feeds, at = {}, {}, 0
    for column in used:
        if column.kind == "category":
            cells = rng.permutation(np.resize(np.array(texts[column.name], dtype=object), n))
            feeds[column.name] = np.array([cell or "" for cell in cells], dtype=object)[:, None]
        elif column.kind == "date":
            moments = rng.integers(*_YEARS_1900_TO_2200, size=n) * 1_000_000 + rng.integers(1_000_000, size=n)
            moments[::4] -= moments[::4] % 86_400_000_000  # midnights
            is_missing = rng.random(n) < 0.1
            cells = np.where(is_missing, np.datetime64("NaT"), moments.astype("datetime64[us]"))
            feeds[column.name] = np.where(is_missing, np.nan, moments / 1e6)[:, None]
        else:
            cells = rng.integers(2, size=n).astype(float) if column.kind == "boolean" else encoded[:, at].copy()
            special = [np.nan, np.inf, -np.inf] + [-1e12, 1e12] * (column.kind == "number")
            is_special = rng.random(n) < 0.2
            cells[is_special] = rng.choice(special, int(is_special.sum()))
            feeds[column.name] = cells[:, None]
        columns[column.name] = cells
        at += len(column.encoded_names)
    return pd.DataFrame(columns), feeds


def _trial_texts(categories: tuple[str, ...]) -> list[str | None]:
    """Cells of a column of categories: known ones in several spellings, unseen and missing ones."""
    spelled = [
        spelling
        for one in categories
        for spelling in (one, f" {one}", f"{one}\t", f"\u00a0{one}\n ", one.swapcase(), one.upper(), one.lower())
    ]
    return [*spelled, "an unseen value", " another unseen value ", "", "  ", None]


def _encoded_rows(members: Sequence[Estimator], n_columns: int, n: int, rng: np.random.Generator) -> Array:
    """Numbers about where training rows lay, ordinary and extreme, some exactly at thresholds of trees."""
    found = rng.standard_t(2, size=(n, n_columns))
    encodings = [member.encoding for member in members if is_networks(member)]
    if encodings:
        found = encodings[0].mean[:n_columns] + encodings[0].scale[:n_columns] * found
    for one in (member for member in members if is_trees(member)):
        inner = (one.left != np.arange(len(one.left))) & np.isfinite(one.threshold)
        for column in np.unique(one.feature[inner]):
            known = np.unique(one.threshold[inner & (one.feature == column)])
            at_threshold = rng.random(n) < 0.3
            found[at_threshold, column] = rng.choice(known, int(at_threshold.sum()))
    return found
