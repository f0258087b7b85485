"""The end of a graph for K classes: probabilities of every class, and the decision by weights or costs."""

from typing import Any

import numpy as np

__all__ = ["class_answers", "close_calls", "is_of_classes"]


def is_of_classes(estimator: Any) -> bool:
    """Whether a fitted estimator has a logit for each class."""
    return np.ndim(getattr(estimator.ensemble_, "shift", 0.0)) == 1


def class_answers(graph: Any, ensemble: Any, weighted: str) -> list[Any]:
    """Probabilities and decision from weighted logits (rows, K) before the map; the names of what can be decided."""
    log_weights, state = graph.constant(ensemble.weighting.log_weights), ensemble.probability_map
    natural = graph.apply("Mul", graph.apply("Sub", weighted, log_weights), graph.constant(state[0]))
    natural = graph.apply("Add", natural, graph.constant(state[1:]))
    p = graph.apply("Softmax", natural, axis=1)
    graph.rename(p, "probabilities")
    names, merit = ensemble.labels.classes.tolist(), graph.apply("Add", natural, log_weights)
    if ensemble.costs is not None:
        names += ensemble.costs.actions
        merit = graph.apply("Neg", graph.apply("MatMul", p, graph.constant(ensemble.costs.costs)))
    is_text = any(isinstance(name, str) for name in names)
    table = graph.constant([str(name) for name in names] if is_text else names, str if is_text else np.int64)
    graph.rename(graph.apply("Gather", table, graph.apply("ArgMax", merit, axis=1, keepdims=0), axis=0), "decision")
    return names


def close_calls(merit: Any, tolerance: float) -> Any:
    """Rows whose best two decisions lie as close as this; ``merit`` is a decision function, (rows,) or (rows, K)."""
    if merit.ndim == 1:
        return np.abs(merit) < tolerance
    best = np.sort(merit, axis=1)[:, -2:]
    return best[:, 1] - best[:, 0] < tolerance * np.maximum(1.0, np.abs(best[:, 1]))
