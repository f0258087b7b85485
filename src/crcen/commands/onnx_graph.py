"""A fitted model as an ONNX graph in double precision: columns, input encoding, members, balance, posterior.

One function a part; `_input_encoding` and `_probability_map` follow `InputEncoding` and ``probability_map_``.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput, TableClassifier

__all__ = [
    "Graph",
    "build_graph",
    "check_columns",
    "close_calls",
    "date_parts",
    "is_networks",
    "is_trees",
]

_OPSET, _ML_OPSET, _IR = 20, 3, 9  # opset 20 brings operations on strings
# What `str.strip` removes, as a regular expression of RE2.
_SPACE = r"[\s\p{Z}\x{0b}\x{1c}-\x{1f}\x{85}]"
_SMOOTH_LIMIT = 3.0
_TIE = 1e-12  # of mapped logits, as in the model: a whole step of an isotonic map can lie on the threshold
_DAY = 86_400.0
# Days from 0000-03-01, with which the count of the algorithm below begins, to 1970-01-01.
_EPOCH = 719_468.0
_CARRIED = ("number", "boolean", "category", "date")

Array = NDArray[np.float64]


class Graph:
    """Nodes and constants of a graph that grows; every method returns the name of a result."""

    def __init__(self, name: str = "crcen") -> None:
        self.name = name
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def input(self, name: str, *, is_text: bool, width: int = 1) -> str:
        """An input of shape (rows, width)."""
        import onnx

        kind = onnx.TensorProto.STRING if is_text else onnx.TensorProto.DOUBLE
        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind, ["rows", width]))
        return name

    def constant(self, value: Any, dtype: Any = np.float64) -> str:
        """A constant array."""
        import onnx

        name = f"{self.name}/constant_{len(self.constants)}"
        array = np.asarray(value, dtype=object if dtype is str else dtype)
        self.constants.append(onnx.numpy_helper.from_array(array, name))
        return name

    def apply(self, operation: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """The result of an operation."""
        import onnx

        name = f"{self.name}/{operation}_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(operation, list(inputs), [name], domain=domain, **attributes))
        return name

    def as_double(self, value: str) -> str:
        """Truth values as 0 and 1."""
        import onnx

        return self.apply("Cast", value, to=onnx.TensorProto.DOUBLE)

    def as_bool(self, value: str) -> str:
        """Integers as truth values."""
        import onnx

        return self.apply("Cast", value, to=onnx.TensorProto.BOOL)

    def as_int(self, value: str) -> str:
        """Numbers or truth values as whole numbers."""
        import onnx

        return self.apply("Cast", value, to=onnx.TensorProto.INT64)

    def clip(self, value: str, low: float, high: float) -> str:
        """Doubles clipped to limits, which may be infinite."""
        return self.apply("Min", self.apply("Max", value, self.constant(low)), self.constant(high))

    def branch(self, result: str) -> Any:
        """These nodes as a branch of another graph, with one result of integers (rows,)."""
        import onnx

        output = onnx.helper.make_tensor_value_info(result, onnx.TensorProto.INT64, ["rows"])
        return onnx.helper.make_graph(self.nodes, self.name, [], [output], self.constants)

    def rename(self, value: str, name: str) -> None:
        """Give a result the name of an output."""
        import onnx

        self.nodes.append(onnx.helper.make_node("Identity", [value], [name]))


def check_columns(columns: Iterable[Any]) -> None:
    """Refuse columns that ONNX has no operations for, by name and kind; it needs no fitted network.

    Parameters
    ----------
    columns : iterable of Column
        Such as ``columns_`` of a `TableClassifier`, or what `learn_column` finds before the fit.

    Raises
    ------
    InvalidInput
        If one of them is free text.
    """
    bad = [one for one in columns if one.kind not in _CARRIED]
    if bad:
        listed = ", ".join(f"the {one.kind} column {one.name}" for one in bad)
        drops = " ".join(f"--drop {one.name}" for one in bad)
        raise InvalidInput(
            f"ONNX cannot carry {listed}: only numbers, truth values, categories and dates; fit with {drops}, or turn "
            f"them into numbers before."
        )


def build_graph(model: Any) -> Any:
    """The ONNX model of a fitted classifier.

    Parameters
    ----------
    model : TableClassifier, CRCENClassifier, CRCENClassifierCV, CSMLPClassifier or CommitteeClassifier
        With columns of numbers, truth values, categories and dates only.

    Returns
    -------
    onnx.ModelProto
        Inputs: ``X`` (rows, features), or one (rows, 1) a column of the table: doubles (NaN where missing), for
        dates the seconds since 1970-01-01 UTC, strings for categories ("" where missing). Outputs: ``probabilities``
        (rows, K) in the order of the classes, and ``decision`` (rows,), the label at the price of training.
    """
    check_columns(getattr(model, "columns_", ()))
    graph = Graph()
    if isinstance(model, TableClassifier):
        estimator = model.estimator_
        X = graph.apply("Concat", *(_column(graph, column) for column in model.columns_), axis=1)
    else:
        estimator = model
        X = graph.input("X", is_text=False, width=model.n_features_in_)
    weighted = _weighted_logit(graph, estimator, X)
    names = _answers(graph, estimator, weighted)
    return _finished(graph, len(estimator.classes_), has_text=any(isinstance(name, str) for name in names))


def _finished(graph: Graph, n_classes: int, *, has_text: bool) -> Any:
    """The model, with its outputs declared."""
    import onnx

    labels = onnx.TensorProto.STRING if has_text else onnx.TensorProto.INT64
    outputs = [
        onnx.helper.make_tensor_value_info("probabilities", onnx.TensorProto.DOUBLE, ["rows", n_classes]),
        onnx.helper.make_tensor_value_info("decision", labels, ["rows"]),
    ]
    proto = onnx.helper.make_graph(graph.nodes, "crcen", graph.inputs, outputs, graph.constants)
    opsets = [onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid("ai.onnx.ml", _ML_OPSET)]
    return onnx.helper.make_model(proto, opset_imports=opsets, ir_version=_IR, producer_name="crcen")


def _column(graph: Graph, column: Any) -> str:
    """A column of the table, encoded as its `encode` does."""
    if column.kind == "category":
        return _category(graph, column)
    cells = graph.input(column.name, is_text=False)
    is_missing = graph.apply("Or", graph.apply("IsNaN", cells), graph.apply("IsInf", cells))
    if column.kind == "date":
        parts = date_parts(graph, graph.apply("Where", is_missing, graph.constant(0.0), cells))
        parts["days"] = graph.clip(parts["days"], column.low, column.high)
        cells = graph.apply("Concat", *(parts[name] for name in column.parts), axis=1)
    filled = graph.apply("Where", is_missing, graph.constant(column.fill), cells)
    if column.kind == "number":
        filled = graph.clip(filled, column.low, column.high)
    return graph.apply("Concat", filled, graph.as_double(is_missing), axis=1) if column.has_missing else filled


def _category(graph: Graph, column: Any) -> str:
    """Zeros and ones by looking up a row: one for each category, one for rare and unseen ones, one for missing."""
    width, n_own = len(column.encoded_names), len(column.categories)
    rows = np.zeros((n_own + 2, width))
    rows[:n_own, :n_own] = np.eye(n_own)
    if column.has_other:
        rows[n_own, n_own] = 1.0
    if column.has_missing:
        rows[n_own + 1, -1] = 1.0
    cells = graph.apply("Reshape", graph.input(column.name, is_text=True), graph.constant([-1], np.int64))
    code = _category_code(graph, cells, column.categories)
    return graph.apply("Gather", graph.constant(rows), code, axis=0)


def _category_code(graph: Graph, cells: str, categories: Sequence[str]) -> str:
    """The number of each cell's category, stripped of white space; then others, then missing cells.

    ONNX cannot strip strings. If any cell begins or ends in white space, each category is a regular expression;
    otherwise one lookup is enough.
    """
    n = len(categories)
    codes = dict(zip([*categories, ""], [*range(n), n + 1], strict=True))
    has_space = graph.apply("RegexFullMatch", cells, pattern=f"(?s){_SPACE}.*|.*{_SPACE}")
    any_space = graph.apply("ReduceMax", graph.as_int(has_space), keepdims=0)
    exact, stripped = (Graph(f"{has_space}/{name}") for name in ("exact", "stripped"))
    found = exact.apply(
        "LabelEncoder",
        cells,
        domain="ai.onnx.ml",
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=n,
    )
    code = stripped.constant(n, np.int64)
    for category, number in codes.items():
        matches = stripped.apply("RegexFullMatch", cells, pattern=f"{_SPACE}*{re.escape(category)}{_SPACE}*")
        code = stripped.apply("Where", matches, stripped.constant(number, np.int64), code)
    branches = {"then_branch": stripped.branch(code), "else_branch": exact.branch(found)}
    return graph.apply("If", graph.as_bool(any_space), **branches)


def _weighted_logit(graph: Graph, estimator: Any, X: str) -> str:
    """The members' mean or weighted sum with the shift of the balance solve, (rows,), or (rows, K)."""
    ensemble = estimator.ensemble_
    weights = ensemble.member_weights
    if weights is None:
        weights = np.full(len(ensemble.members), 1.0 / len(ensemble.members))
    total = ""
    for member, weight in zip(ensemble.members, weights.tolist(), strict=True):
        logit = tree_logit(graph, member, X) if is_trees(member) else _network_logit(graph, member, X)
        part = logit if weight == 1.0 else graph.apply("Mul", logit, graph.constant(weight))
        total = graph.apply("Add", total, part) if total else part
    return graph.apply("Add", total, graph.constant(estimator.shift_))


def is_networks(member: Any) -> bool:
    """Whether a member is a group of networks."""
    return hasattr(member, "encoding")


def _network_logit(graph: Graph, group: Any, X: str) -> str:
    """The mean logit of networks of one shape, (rows,), or (rows, K)."""
    hidden = _input_encoding(graph, group.encoding, X)
    for layer, (weights, biases) in enumerate(zip(group.weights, group.biases, strict=True)):  # (networks, in, out)
        product = graph.apply("MatMul", hidden, graph.constant(weights))
        hidden = graph.apply("Add", product, graph.constant(biases[:, None, :]))
        if layer < len(group.weights) - 1:
            hidden = _activation(graph, group.activation, hidden)
    if getattr(group, "is_one_against_all", False):  # log σ(o) = min(o, 0) − log(1 + e^−|o|)
        small = graph.apply("Exp", graph.apply("Neg", graph.apply("Abs", hidden)))
        rest = graph.apply("Log", graph.apply("Add", small, graph.constant(1.0)))
        hidden = graph.apply("Sub", graph.apply("Min", hidden, graph.constant(0.0)), rest)
    axes = graph.constant([0, 2] if group.biases[-1].shape[1] == 1 else [0], np.int64)
    return graph.apply("ReduceMean", hidden, axes, keepdims=0)


def _activation(graph: Graph, name: str, x: str) -> str:
    if name in ("relu", "tanh", "sigmoid"):
        return graph.apply(name.capitalize(), x)
    if name == "silu":
        return graph.apply("Mul", x, graph.apply("Sigmoid", x))
    if name == "gelu":
        raise InvalidInput("ONNX runtimes have no error function in double precision, which gelu needs; fit with relu.")
    raise InvalidInput(f"the activation {name} has no ONNX form here.")


def _input_encoding(graph: Graph, encoding: Any, X: str) -> str:
    """The network's frozen input layer: squash(clip((r(x[columns]) − mean)/scale, low, high)), (rows, encoded).

    Where cells may be missing: 0 for them, and their indicators beside the columns.
    """
    is_missing = graph.apply("IsNaN", X) if encoding.indicators is not None else ""
    if encoding.knots is not None:
        X = _piecewise_linear(graph, X, encoding.knots, encoding.scores)
    if encoding.indicators is not None:
        indicators = graph.apply("Gather", is_missing, graph.constant(encoding.indicators, np.int64), axis=1)
        X = graph.apply("Concat", X, graph.as_double(indicators), axis=1)
        never = graph.apply("And", indicators, graph.constant(False, np.bool_))
        is_missing = graph.apply("Concat", is_missing, never, axis=1)
    if encoding.columns is not None:
        columns = graph.constant(encoding.columns, np.int64)
        X = graph.apply("Gather", X, columns, axis=1)
        is_missing = is_missing and graph.apply("Gather", is_missing, columns, axis=1)
    z = graph.apply("Div", graph.apply("Sub", X, graph.constant(encoding.mean)), graph.constant(encoding.scale))
    if encoding.low is not None:
        z = graph.apply("Min", graph.apply("Max", z, graph.constant(encoding.low)), graph.constant(encoding.high))
    if encoding.is_smooth:
        ratio = graph.apply("Div", z, graph.constant(_SMOOTH_LIMIT))
        square = graph.apply("Add", graph.apply("Mul", ratio, ratio), graph.constant(1.0))
        z = graph.apply("Div", z, graph.apply("Sqrt", square))
    # Not left to NaN itself: runtimes differ in what their Min and Max make of it.
    return graph.apply("Where", is_missing, graph.constant(0.0), z) if is_missing else z


def _piecewise_linear(graph: Graph, X: str, knots: Array, scores: Array) -> str:
    """What `numpy.interp` gives: columns (rows, F) through corners (F, T), as a sum of ramps."""
    widths, rises = np.diff(knots, axis=1), np.diff(scores, axis=1)
    slopes = np.divide(rises, widths, out=np.zeros_like(rises), where=widths > 0)
    deep = graph.apply("Unsqueeze", X, graph.constant([2], np.int64))
    above = graph.apply("Max", graph.apply("Sub", deep, graph.constant(knots[:, :-1])), graph.constant(0.0))
    ramps = graph.apply("Mul", graph.apply("Min", above, graph.constant(widths)), graph.constant(slopes))
    total = graph.apply("ReduceSum", ramps, graph.constant([2], np.int64), keepdims=0)
    return graph.apply("Add", total, graph.constant(scores[:, 0]))


def _probability_map(graph: Graph, state: Array, logit: str) -> str:
    """The fitted map of natural logits: slope and intercept, or corners."""
    if state.ndim == 1:
        return graph.apply("Add", graph.apply("Mul", logit, graph.constant(state[0])), graph.constant(state[1]))
    column = graph.apply("Unsqueeze", logit, graph.constant([1], np.int64))
    mapped = _piecewise_linear(graph, column, state[:1], state[1:])
    return graph.apply("Reshape", mapped, graph.constant([-1], np.int64))


def _answers(graph: Graph, estimator: Any, weighted: str) -> list[Any]:
    """Probabilities and decision from weighted logits before the map; returns the names of the decisions.

    Logits are (rows,) with a positive class, (rows, K) otherwise.
    """
    labels, price, state = estimator.ensemble_.labels, estimator.weighting_, estimator.probability_map_
    names = labels.classes.tolist()
    if labels.positive is not None:
        shift, axis, closest = graph.constant(price.logit_shift), graph.constant([1], np.int64), 0.0
        natural = graph.apply("Sub", weighted, shift)
        if state.tolist() != [1.0, 0.0]:
            natural, closest = _probability_map(graph, state, natural), _TIE
            weighted = graph.apply("Add", natural, shift)
        p = graph.apply("Unsqueeze", graph.apply("Sigmoid", natural), axis)
        rest = graph.apply("Unsqueeze", graph.apply("Sigmoid", graph.apply("Neg", natural)), axis)
        graph.rename(graph.apply("Concat", *((rest, p) if labels.is_last else (p, rest)), axis=1), "probabilities")
        chosen = graph.as_int(graph.apply("Greater", weighted, graph.constant(closest)))
        names = [labels.negative, labels.positive]
    else:
        log_weights = graph.constant(price.log_weights)
        natural = graph.apply("Mul", graph.apply("Sub", weighted, log_weights), graph.constant(state[0]))
        natural = graph.apply("Add", natural, graph.constant(state[1:]))
        p = graph.apply("Softmax", natural, axis=1)
        graph.rename(p, "probabilities")
        merit = graph.apply("Add", natural, log_weights)
        if price.costs is not None:
            names += price.costs.actions
            merit = graph.apply("Neg", graph.apply("MatMul", p, graph.constant(price.costs.costs)))
        chosen = graph.apply("ArgMax", merit, axis=1, keepdims=0)
    is_text = any(isinstance(name, str) for name in names)
    table = graph.constant([str(name) for name in names] if is_text else names, str if is_text else np.int64)
    graph.rename(graph.apply("Gather", table, chosen, axis=0), "decision")
    return names


def close_calls(merit: Any, tolerance: float) -> Any:
    """Rows whose best two decisions lie as close as this; ``merit`` is a decision function, (rows,) or (rows, K)."""
    if merit.ndim == 1:
        return np.abs(merit) < tolerance
    best = np.sort(merit, axis=1)[:, -2:]
    return best[:, 1] - best[:, 0] < tolerance * np.maximum(1.0, np.abs(best[:, 1]))


def date_parts(graph: Any, seconds: str) -> dict[str, str]:
    """Days, month, day, weekday and hour from seconds since 1970-01-01 UTC, as `DateColumn` has them.

    Month and day follow Howard Hinnant's ``civil_from_days``: years begin in March, so that the leap day comes last.
    All steps but the first are on whole numbers, which doubles hold exactly.

    Parameters
    ----------
    graph : Graph
        Where the operations go.
    seconds : str
        Doubles of shape (rows, 1), without NaN.

    Returns
    -------
    dict of str to str
        Name of the part → name of its result, (rows, 1).
    """

    def scaled(value: str, factor: float) -> str:
        return graph.apply("Mul", value, graph.constant(factor))

    def plus(value: str, number: float) -> str:
        return graph.apply("Add", value, graph.constant(number))

    def whole(value: str, divisor: float) -> str:
        return graph.apply("Floor", graph.apply("Div", value, graph.constant(divisor)))

    def total(*values: str) -> str:
        found = values[0]
        for value in values[1:]:
            found = graph.apply("Add", found, value)
        return found

    def rest(value: str, divisor: float) -> str:
        return total(value, scaled(whole(value, divisor), -divisor))

    date = whole(seconds, _DAY)
    of_day = total(seconds, scaled(date, -_DAY))
    hour, minute = whole(of_day, 3600.0), whole(rest(of_day, 3600.0), 60.0)
    of_era = rest(plus(date, _EPOCH), 146_097.0)
    leaps = (scaled(whole(of_era, 1460.0), -1.0), whole(of_era, 36_524.0), scaled(whole(of_era, 146_096.0), -1.0))
    year = whole(total(of_era, *leaps), 365.0)
    of_year = total(of_era, scaled(year, -365.0), scaled(whole(year, 4.0), -1.0), whole(year, 100.0))
    month = whole(plus(scaled(of_year, 5.0), 2.0), 153.0)  # 0 is March
    day = plus(total(of_year, scaled(whole(plus(scaled(month, 153.0), 2.0), 5.0), -1.0)), 1.0)
    return {
        "days": graph.apply("Div", seconds, graph.constant(_DAY)),
        "month": plus(rest(plus(month, 2.0), 12.0), 1.0),
        "day": day,
        "weekday": rest(plus(date, 3.0), 7.0),
        "hour": total(hour, graph.apply("Div", minute, graph.constant(60.0))),
    }


def is_trees(member: Any) -> bool:
    """Whether a member is an ensemble of trees."""
    return hasattr(member, "roots")


def tree_logit(graph: Any, trees: Any, X: str) -> str:
    """The logit of boosted trees, (rows,), or (rows, K).

    The tree operator compares in double precision, but its answers are single. So it is asked for the number of the
    leaf that a row ends in, one answer a tree, which single precision holds exactly; the leaves' values are looked up
    by that number and added in double precision.

    Parameters
    ----------
    graph : Graph
        Where the operations go.
    trees : TreeEnsemble
        The trees.
    X : str
        Doubles of shape (rows, features).

    Returns
    -------
    str
        Name of the result.
    """
    own = np.arange(len(trees.left))
    is_leaf = trees.left == own
    ends = np.append(trees.roots[1:], len(own))
    tree_of = np.repeat(np.arange(trees.n_trees), ends - trees.roots)
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
        nodes_values_as_tensor=_doubles("thresholds", np.where(is_leaf, 0.0, trees.threshold)),
        nodes_truenodeids=np.where(is_leaf, 0, trees.left - trees.roots[tree_of]).tolist(),
        nodes_falsenodeids=np.where(is_leaf, 0, trees.right - trees.roots[tree_of]).tolist(),
        nodes_missing_value_tracks_true=(trees.missing_left & ~is_leaf).astype(int).tolist(),
        target_treeids=tree_of[leaves].tolist(),
        target_nodeids=node[leaves].tolist(),
        target_ids=tree_of[leaves].tolist(),
        target_weights_as_tensor=_doubles("leaf_numbers", leaf_number[leaves].astype(np.float64)),
    )
    # (rows, trees, width) leaf values; trees of different outputs are summed by a matrix of zeros and ones.
    width, n_outputs = trees.value.shape[1], len(trees.baseline)
    leaf_values = graph.constant(trees.value[leaves] if width > 1 else trees.value[leaves, 0])
    values = graph.apply("Gather", leaf_values, graph.as_int(numbers), axis=0)
    if width == n_outputs or n_outputs == 1:
        total = graph.apply("ReduceSum", values, graph.constant([1], np.int64), keepdims=0)
    else:
        belongs = (trees.output[:, None] == np.arange(n_outputs)).astype(np.float64)
        total = graph.apply("MatMul", values, graph.constant(belongs))
    return graph.apply("Add", total, graph.constant(trees.baseline if n_outputs > 1 else trees.baseline[0]))


def _doubles(name: str, values: Any) -> Any:
    import onnx

    return onnx.numpy_helper.from_array(np.asarray(values, dtype=np.float64), name)
