"""export_onnx: a model as one ONNX graph in double precision, written only if it reproduces the model."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import CrcenError, TableClassifier, __version__
from crcen._support.extras import need
from crcen._support.files import check_writable, write_atomic
from crcen._support.text import Values, json_value
from crcen.commands.inputs import model_of, require, require_input
from crcen.commands.results import Result
from crcen.commands.rules import price_values
from crcen.theory.rows import Array, Estimator, Rows

_ROWS = 512
_TOLERANCE = 1e-9
_YEARS_1900_TO_2200 = (-2_208_988_800, 7_258_118_400)  # in seconds since 1970
_OPSET, _ML_OPSET, _IR = 20, 3, 9  # opset 20 brings operations on strings
# What `str.strip` removes, as a regular expression of RE2.
_SPACE = r"[\s\p{Z}\x{0b}\x{1c}-\x{1f}\x{85}]"
_SMOOTH_LIMIT = 3.0
_TIE = 1e-12  # of mapped logits, as in the model: a whole step of an isotonic map can lie on the threshold
_DAY = 86_400.0
# Days from 0000-03-01, with which the count of `date_parts` begins, to 1970-01-01.
_EPOCH = 719_468.0
_CARRIED = ("number", "boolean", "category", "date")


@dataclass(frozen=True, repr=False)
class OnnxExport(Result):
    """A graph that was written; prints itself."""

    keys = "path inputs checked_rows=n_checked largest_difference"
    path: Path
    inputs: dict[str, str]  # name → "number", "text", or "seconds" since 1970-01-01 UTC for dates
    n_checked: int  # rows on which both were compared
    largest_difference: float  # between the graph's probabilities and `predict_proba`

    def __str__(self) -> str:
        found = f"probabilities differ from predict_proba by at most {self.largest_difference:.1e}"
        inputs = f"{len(self.inputs)} inputs, outputs probabilities and decision"
        return f"{inputs}; on {self.n_checked} rows {found}\nWritten to {self.path}"


def export_onnx(model: Estimator, out: str | Path) -> OnnxExport:
    """Write a model as one ONNX graph in double precision, as `crcen export --onnx` does.

    Before it is written, onnxruntime must reproduce the model's outputs on artificial rows: ordinary and extreme
    numbers, missing cells, every category with white space and in another case, unseen ones.

    Parameters
    ----------
    model : fitted classifier, str or Path
        The model, or its file.
    out : str or Path
        The ONNX file to write.

    Raises
    ------
    InvalidInput
        If a column, setting or member cannot be exported: free text, another library's classifier in a committee.
    CrcenError
        If outputs of the graph differ from those of the model.
    """
    fitted: Estimator = model_of(model)
    check_exportable(fitted, out, model)
    onnx, runtime = need("onnx", "onnx"), need("onnxruntime", "onnx")
    estimator: Any = getattr(fitted, "estimator_", fitted)
    require_input(hasattr(estimator, "ensemble_"), f"only models of crcen are exported: got {type(fitted).__name__}.")
    proto = build_graph(fitted)
    classes = [json_value(label) for label in fitted.classes_]
    described = {"classes": classes, "price": price_values(fitted.weighting_, classes)}
    properties = {name: json.dumps(value) for name, value in described.items()}
    onnx.helper.set_model_props(proto, {"crcen": __version__, **properties})
    onnx.checker.check_model(proto)
    content = proto.SerializeToString()
    rows, feeds = _trial_rows(fitted, estimator)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    probabilities, decisions = session.run(["probabilities", "decision"], feeds)
    X = fitted.encode(rows).X if isinstance(fitted, TableClassifier) else rows
    largest = float(np.abs(probabilities - estimator.predict_proba(X)).max())
    labels, merit = estimator.predict(X), estimator.decision_function(X)
    labels = labels.astype(np.int64) if labels.dtype.kind == "b" else labels
    best = np.sort(np.column_stack([0.0 * merit, merit]) if merit.ndim == 1 else merit, axis=1)[:, -2:]
    is_tie = best[:, 1] - best[:, 0] < _TOLERANCE * np.maximum(1.0, np.abs(best[:, 1]))  # may fall either way
    is_same = ((decisions.astype(str) == labels.astype(str)) | is_tie).all()
    differ = f"the graph does not reproduce the model (probabilities differ by up to {largest:.1e})"
    is_right = largest <= _TOLERANCE and is_same
    require(is_right, f"{differ}, so nothing was written; please report this.", error=CrcenError)
    write_atomic(out, content)
    inputs = {one.name: "text" if one.type == "tensor(string)" else "number" for one in session.get_inputs()}
    inputs |= {one.name: "seconds" for one in getattr(fitted, "columns_", ()) if one.kind == "date"}
    return OnnxExport(Path(out), inputs, len(probabilities), largest)


def check_exportable(model: Estimator, out: str | Path, *read: object) -> None:
    """Reject packages, files ``read``, members and columns that cannot be exported, also before a fit."""
    for module in ("onnx", "onnxruntime"):
        need(module, "onnx")
    check_writable(out, *read)
    estimator = getattr(model, "estimator_", getattr(model, "estimator", model))
    members = getattr(estimator, "ensemble_", estimator)
    members = getattr(members, "members", None) or ()
    for one in [] if isinstance(members, str) else members:
        name = type(getattr(one, "model", one)).__name__
        other = f"a committee with a {name} cannot be exported to ONNX; leave it out of members, or predict in Python."
        require_input(isinstance(one, str) or is_networks(one) or is_trees(one), other)
    bad = [one for one in getattr(model, "columns_", ()) if one.kind not in _CARRIED]
    named, drops = ", ".join(f"the {one.kind} column {one.name}" for one in bad), [f"--drop {one.name}" for one in bad]
    instead = f"fit with {' '.join(drops)}, or turn them into numbers before."
    only = "only numbers, truth values, categories and dates"
    require_input(not bad, f"ONNX cannot carry {named}: {only}; {instead}")


def _trial_rows(model: Estimator, estimator: Estimator) -> tuple[Rows, Values]:
    """Artificial rows for the model, and the same rows for the graph: ordinary, extreme, unseen and missing cells."""
    rng, members, used = np.random.default_rng(0), estimator.ensemble_.members, list(getattr(model, "columns_", ()))
    texts = {one.name: _trial_texts(one.categories) for one in used if one.kind == "category"}
    n = max([_ROWS, *map(len, texts.values())])
    encoded = _encoded_rows(members, estimator.n_features_in_, n, rng)
    if not isinstance(model, TableClassifier):
        if all(member.encoding.indicators is not None for member in members if is_networks(member)):
            encoded[rng.random(encoded.shape) < 0.1] = np.nan
        names = getattr(model, "feature_names_in_", None)
        return (encoded if names is None else pd.DataFrame(encoded, columns=names)), {"X": encoded}
    columns, feeds, at = {}, {}, 0
    for column in used:
        if column.kind == "category":
            cells = rng.permutation(np.resize(np.array(texts[column.name], dtype=object), n))
            fed = np.array([cell or "" for cell in cells], dtype=object)
        elif column.kind == "date":
            moments = rng.integers(*_YEARS_1900_TO_2200, size=n) * 1_000_000 + rng.integers(1_000_000, size=n)
            moments[::4] -= moments[::4] % 86_400_000_000  # midnights
            is_missing = rng.random(n) < 0.1
            cells = np.where(is_missing, np.datetime64("NaT"), moments.astype("datetime64[us]"))
            fed = np.where(is_missing, np.nan, moments / 1e6)
        else:
            cells = rng.integers(2, size=n).astype(float) if column.kind == "boolean" else encoded[:, at].copy()
            special = [np.nan, np.inf, -np.inf] + [-1e12, 1e12] * (column.kind == "number")
            is_special = rng.random(n) < 0.2
            cells[is_special] = rng.choice(special, int(is_special.sum()))
            fed = cells
        columns[column.name], feeds[column.name] = cells, fed[:, None]
        at += len(column.encoded_names)
    return pd.DataFrame(columns), feeds


def _trial_texts(categories: tuple[str, ...]) -> list[str | None]:
    """Cells of a column of categories: known ones in several spellings, unseen and missing ones."""
    found: list[str | None] = ["an unseen value", " another unseen value ", "", "  ", None]
    for one in categories:
        found += [one, f" {one}", f"{one}\t", f"\u00a0{one}\n ", one.swapcase(), one.upper(), one.lower()]
    return found


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


def _operation(name: str) -> Callable[[_Value, Operand], _Value]:
    return lambda value, other: value.graph.apply(name, value, other)


@dataclass(frozen=True, eq=False)
class _Value:
    """A result in a graph; arithmetic adds operations to the graph."""

    graph: _Graph
    name: str

    __add__, __sub__, __mul__, __truediv__ = map(_operation, ("Add", "Sub", "Mul", "Div"))

    def __neg__(self) -> _Value:
        return self.graph.apply("Neg", self)

    def __floordiv__(self, other: Operand) -> _Value:
        return self.graph.apply("Floor", self / other)

    def __mod__(self, other: float) -> _Value:
        return self - (self // other) * other

    def clip(self, low: Operand, high: Operand) -> _Value:
        return self.graph.apply("Min", self.graph.apply("Max", self, low), high)

    def replaced(self, condition: _Value, other: Operand) -> _Value:
        return self.graph.apply("Where", condition, other, self)

    def cast(self, kind: str) -> _Value:
        return self.graph.apply("Cast", self, to=getattr(self.graph.onnx.TensorProto, kind))

    def expanded(self, axis: int) -> _Value:
        return self.graph.apply("Unsqueeze", self, [axis])

    def columns(self, numbers: Sequence[int] | NDArray[np.int64]) -> _Value:
        return self.graph.apply("Gather", self, np.asarray(numbers, dtype=np.int64), axis=1)


# What is no value becomes a constant: whole numbers as int64, truth values and texts as such, the rest as doubles.
Operand: TypeAlias = "_Value | float | bool | list[int] | list[str] | NDArray[np.generic]"
# Objects of onnx; members of an ensemble and columns by duck typing.
Proto: TypeAlias = Any
Member: TypeAlias = Any


class _Graph:
    """Nodes and constants of a graph that grows."""

    def __init__(self, name: str = "crcen") -> None:
        self.name, self.onnx = name, need("onnx", "onnx")
        self.nodes: list[Proto] = []
        self.constants: list[Proto] = []
        self.inputs: list[Proto] = []

    def input(self, name: str, *, is_text: bool = False, width: int = 1) -> _Value:
        """An input of shape (rows, width)."""
        kind = self.onnx.TensorProto.STRING if is_text else self.onnx.TensorProto.DOUBLE
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["rows", width]))
        return _Value(self, name)

    def constant(self, value: Operand) -> _Value:
        """A constant array; a value stays as it is."""
        if isinstance(value, _Value):
            return value
        array = np.asarray(value)
        kind = {"i": np.int64, "b": np.bool_, "U": object, "O": object}.get(array.dtype.kind, np.float64)
        name = f"{self.name}/constant_{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array.astype(kind), name))
        return _Value(self, name)

    def apply(self, operation: str, *inputs: Operand, domain: str = "", **attributes: object) -> _Value:
        names = [self.constant(one).name for one in inputs]
        name = f"{self.name}/{operation}_{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, names, [name], domain=domain, **attributes))
        return _Value(self, name)

    def joined(self, *values: _Value) -> _Value:
        return self.apply("Concat", *values, axis=1)

    def branch(self, result: _Value) -> Proto:
        """These nodes as a branch of another graph, with one result of integers (rows,)."""
        output = self.onnx.helper.make_tensor_value_info(result.name, self.onnx.TensorProto.INT64, ["rows"])
        return self.onnx.helper.make_graph(self.nodes, self.name, [], [output], self.constants)

    def output(self, value: _Value, name: str) -> None:
        self.nodes.append(self.onnx.helper.make_node("Identity", [value.name], [name]))


def build_graph(model: Estimator) -> Proto:
    """The ONNX model of a fitted classifier: inputs ``X`` (rows, features), or one (rows, 1) a column of the table.

    Missing numbers are NaN, missing texts ""; dates are seconds since 1970. Outputs: ``probabilities``, ``decision``.
    """
    graph, estimator = _Graph(), model
    onnx = graph.onnx
    if isinstance(model, TableClassifier):
        estimator = model.estimator_
        X = graph.joined(*(_column(graph, column) for column in model.columns_))
    else:
        X = graph.input("X", width=model.n_features_in_)
    names = _answers(graph, estimator, _weighted_logit(graph, estimator, X))
    kind = onnx.TensorProto.STRING if any(isinstance(name, str) for name in names) else onnx.TensorProto.INT64
    n_classes, info = len(estimator.classes_), onnx.helper.make_tensor_value_info
    outputs = [info("probabilities", onnx.TensorProto.DOUBLE, ["rows", n_classes]), info("decision", kind, ["rows"])]
    proto = onnx.helper.make_graph(graph.nodes, "crcen", graph.inputs, outputs, graph.constants)
    opsets = [onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    return onnx.helper.make_model(proto, opset_imports=opsets, ir_version=_IR, producer_name="crcen")


def _column(graph: _Graph, column: Member) -> _Value:
    if column.kind == "category":
        return _category(graph, column)
    cells = graph.input(column.name)
    is_missing = graph.apply("Or", graph.apply("IsNaN", cells), graph.apply("IsInf", cells))
    if column.kind == "date":
        parts = date_parts(cells.replaced(is_missing, 0.0))
        parts["days"] = parts["days"].clip(float(column.low), float(column.high))
        cells = graph.joined(*(parts[name] for name in column.parts))
    filled = cells.replaced(is_missing, np.asarray(column.fill, dtype=np.float64))
    if column.kind == "number":
        filled = filled.clip(float(column.low), float(column.high))
    return graph.joined(filled, is_missing.cast("DOUBLE")) if column.has_missing else filled


def _category(graph: _Graph, column: Member) -> _Value:
    """Zeros and ones by looking up a row: one for each category, one for rare and unseen ones, one for missing."""
    n = len(column.categories)
    rows = np.zeros((n + 2, len(column.encoded_names)))
    rows[:n, :n] = np.eye(n)
    if column.has_other:
        rows[n, n] = 1.0
    if column.has_missing:
        rows[n + 1, -1] = 1.0
    cells = graph.apply("Reshape", graph.input(column.name, is_text=True), [-1])
    # ONNX cannot strip strings: if any cell has outer white space, each category is a regular expression.
    codes = dict(zip([*column.categories, ""], [*range(n), n + 1], strict=True))
    has_space = graph.apply("RegexFullMatch", cells, pattern=f"(?s){_SPACE}.*|.*{_SPACE}")
    any_space = graph.apply("ReduceMax", has_space.cast("INT64"), keepdims=0)
    exact, stripped = (_Graph(f"{has_space.name}/{name}") for name in ("exact", "stripped"))
    lookup = {"keys_strings": list(codes), "values_int64s": list(codes.values()), "default_int64": n}
    found = exact.apply("LabelEncoder", cells, domain="ai.onnx.ml", **lookup)
    code = stripped.constant(n)
    for category, number in codes.items():
        matches = stripped.apply("RegexFullMatch", cells, pattern=f"{_SPACE}*{re.escape(category)}{_SPACE}*")
        code = code.replaced(matches, number)
    branches = {"then_branch": stripped.branch(code), "else_branch": exact.branch(found)}
    return graph.apply("Gather", rows, graph.apply("If", any_space.cast("BOOL"), **branches), axis=0)


def date_parts(seconds: _Value) -> dict[str, _Value]:
    """Days, month, day, weekday and hour from seconds since 1970, as `DateColumn` has them (by Hinnant)."""
    date, of_day = seconds // _DAY, seconds % _DAY
    of_era = (date + _EPOCH) % 146_097.0
    year = (of_era - of_era // 1460.0 + of_era // 36_524.0 - of_era // 146_096.0) // 365.0
    of_year = of_era - year * 365.0 - year // 4.0 + year // 100.0
    month = (of_year * 5.0 + 2.0) // 153.0  # 0 is March
    return {
        "days": seconds / _DAY,
        "month": (month + 2.0) % 12.0 + 1.0,
        "day": of_year - (month * 153.0 + 2.0) // 5.0 + 1.0,
        "weekday": (date + 3.0) % 7.0,
        "hour": of_day // 3600.0 + (of_day % 3600.0) // 60.0 / 60.0,
    }


def is_networks(member: Member) -> bool:
    """Whether a member is a group of networks."""
    return hasattr(member, "encoding")


def is_trees(member: Member) -> bool:
    """Whether a member is an ensemble of trees."""
    return hasattr(member, "roots")


def _weighted_logit(graph: _Graph, estimator: Estimator, X: _Value) -> _Value:
    """The members' mean or weighted sum with the shift of the balance solve, (rows,), or (rows, K)."""
    members, weights = estimator.ensemble_.members, estimator.ensemble_.member_weights
    weights = np.full(len(members), 1.0 / len(members)) if weights is None else weights
    total: _Value | None = None
    for member, weight in zip(members, weights.tolist(), strict=True):
        logit = _tree_logit(graph, member, X) if is_trees(member) else _network_logit(graph, member, X)
        part = logit if weight == 1.0 else logit * weight
        total = part if total is None else total + part
    assert total is not None
    return total + np.asarray(estimator.shift_, dtype=np.float64)


def _network_logit(graph: _Graph, group: Member, X: _Value) -> _Value:
    """The mean logit of networks of one shape, (rows,), or (rows, K)."""
    hidden = _input_encoding(graph, group.encoding, X)
    for layer, (weights, biases) in enumerate(zip(group.weights, group.biases, strict=True)):  # (networks, in, out)
        hidden = graph.apply("MatMul", hidden, weights) + biases[:, None, :]
        if layer < len(group.weights) - 1:
            hidden = _activation(graph, group.activation, hidden)
    if getattr(group, "is_one_against_all", False):  # log σ(o) = min(o, 0) − log(1 + e^−|o|)
        small = graph.apply("Exp", -graph.apply("Abs", hidden))
        hidden = graph.apply("Min", hidden, 0.0) - graph.apply("Log", small + 1.0)
    return graph.apply("ReduceMean", hidden, [0, 2] if group.biases[-1].shape[1] == 1 else [0], keepdims=0)


def _activation(graph: _Graph, name: str, x: _Value) -> _Value:
    # Runtimes have no error function in double precision, which gelu needs.
    known = ("relu", "tanh", "sigmoid", "silu")
    require_input(name in known, f"the activation {name} cannot be exported: fit with one of {', '.join(known)}.")
    return x * graph.apply("Sigmoid", x) if name == "silu" else graph.apply(name.capitalize(), x)


def _input_encoding(graph: _Graph, encoding: Member, X: _Value) -> _Value:
    """The network's frozen `InputEncoding`, (rows, encoded): 0 for missing cells, with their indicators."""
    is_missing = graph.apply("IsNaN", X) if encoding.indicators is not None else None
    if encoding.knots is not None:
        X = _piecewise_linear(graph, X, encoding.knots, encoding.scores)
    if is_missing is not None:
        indicators = is_missing.columns(encoding.indicators)
        X = graph.joined(X, indicators.cast("DOUBLE"))
        is_missing = graph.joined(is_missing, graph.apply("And", indicators, False))
    if encoding.columns is not None:
        X = X.columns(encoding.columns)
        is_missing = None if is_missing is None else is_missing.columns(encoding.columns)
    z = (X - encoding.mean) / encoding.scale
    if encoding.low is not None:
        z = z.clip(encoding.low, encoding.high)
    if encoding.is_smooth:
        ratio = z / _SMOOTH_LIMIT
        z = z / graph.apply("Sqrt", ratio * ratio + 1.0)
    # Not left to NaN itself: runtimes differ in what their Min and Max make of it.
    return z if is_missing is None else z.replaced(is_missing, 0.0)


def _piecewise_linear(graph: _Graph, X: _Value, knots: Array, scores: Array) -> _Value:
    """What `numpy.interp` gives: columns (rows, F) through corners (F, T), as a sum of ramps."""
    widths, rises = np.diff(knots, axis=1), np.diff(scores, axis=1)
    slopes = np.divide(rises, widths, out=np.zeros_like(rises), where=widths > 0)
    ramps = (X.expanded(2) - knots[:, :-1]).clip(0.0, widths) * slopes
    return graph.apply("ReduceSum", ramps, [2], keepdims=0) + scores[:, 0]


def _tree_logit(graph: _Graph, trees: Member, X: _Value) -> _Value:
    # The operator's outputs are single precision: it returns leaf numbers, whose values are added in double precision.

    def doubles(name: str, values: NDArray[np.generic]) -> Proto:
        return graph.onnx.numpy_helper.from_array(np.asarray(values, dtype=np.float64), name)

    own = np.arange(len(trees.left))
    is_leaf = trees.left == own
    tree_of = np.repeat(np.arange(trees.n_trees), np.diff(trees.roots, append=len(own)))
    node = own - trees.roots[tree_of]  # numbers begin anew in every tree
    leaves = np.flatnonzero(is_leaf)
    leaf_number = np.cumsum(is_leaf) - 1
    numbers = graph.apply(
        "TreeEnsembleRegressor",
        X,
        domain="ai.onnx.ml",
        n_targets=trees.n_trees,
        nodes_treeids=tree_of.tolist(),
        nodes_nodeids=node.tolist(),
        nodes_featureids=trees.feature.tolist(),
        nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_values_as_tensor=doubles("thresholds", np.where(is_leaf, 0.0, trees.threshold)),
        nodes_truenodeids=np.where(is_leaf, 0, trees.left - trees.roots[tree_of]).tolist(),
        nodes_falsenodeids=np.where(is_leaf, 0, trees.right - trees.roots[tree_of]).tolist(),
        nodes_missing_value_tracks_true=(trees.missing_left & ~is_leaf).astype(int).tolist(),
        target_treeids=tree_of[leaves].tolist(),
        target_nodeids=node[leaves].tolist(),
        target_ids=tree_of[leaves].tolist(),
        target_weights_as_tensor=doubles("leaf_numbers", leaf_number[leaves]),
    )
    # (rows, trees, width) leaf values; trees of different outputs are summed by a matrix of zeros and ones.
    width, n_outputs = trees.value.shape[1], len(trees.baseline)
    leaf_values = trees.value[leaves] if width > 1 else trees.value[leaves, 0]
    values = graph.apply("Gather", leaf_values, numbers.cast("INT64"), axis=0)
    if width == n_outputs or n_outputs == 1:
        total = graph.apply("ReduceSum", values, [1], keepdims=0)
    else:
        total = graph.apply("MatMul", values, (trees.output[:, None] == np.arange(n_outputs)).astype(np.float64))
    total = total + (trees.baseline if n_outputs > 1 else trees.baseline[0])
    if not trees.has_shares:
        return total
    logs = graph.apply("Log", total)
    return logs if n_outputs > 1 else logs - graph.apply("Log", -total + trees.share_of_both)


def _answers(graph: _Graph, estimator: Estimator, weighted: _Value) -> list[object]:
    """Probabilities and decision from weighted logits (one a row with a positive class); returns names of decisions."""
    labels, price, state = estimator.ensemble_.labels, estimator.weighting_, estimator.probability_map_
    names = labels.classes.tolist()
    if labels.positive is not None:
        closest, natural = 0.0, weighted - price.logit_shift
        if state.tolist() != [1.0, 0.0]:  # slope and intercept, or corners
            if state.ndim == 1:
                natural = natural * state[0] + state[1]
            else:
                mapped = _piecewise_linear(graph, natural.expanded(1), state[:1], state[1:])
                natural = graph.apply("Reshape", mapped, [-1])
            closest, weighted = _TIE, natural + price.logit_shift
        p, rest = (graph.apply("Sigmoid", one).expanded(1) for one in (natural, -natural))
        graph.output(graph.joined(*((rest, p) if labels.is_last else (p, rest))), "probabilities")
        chosen = graph.apply("Greater", weighted, closest).cast("INT64")
        names = [labels.negative, labels.positive]
    else:
        natural = (weighted - price.log_weights) * state[0] + state[1:]
        p = graph.apply("Softmax", natural, axis=1)
        graph.output(p, "probabilities")
        merit = natural + price.log_weights
        if price.costs is not None:
            names += price.costs.actions
            merit = -graph.apply("MatMul", p, price.costs.costs)
        chosen = graph.apply("ArgMax", merit, axis=1, keepdims=0)
    table = [str(name) for name in names] if any(isinstance(name, str) for name in names) else [int(n) for n in names]
    graph.output(graph.apply("Gather", table, chosen, axis=0), "decision")
    return names
